//! The outside as it is: the system's clock, a thread per effect, one thread that watches jobs.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use mainstem_api::time;
use mainstem_core::id::Time;
use mainstem_core::machine::Input;
use mainstem_core::room::Shortage;
use mainstem_host::clock;
use mainstem_host::process::{Watch, WatchEvent};
use mainstem_planner::draft::Parked;

use crate::event::Event;
use crate::outside::Outside;
use crate::perform::{Order, carry_out};
use crate::queue::Ticket;
use crate::room;
use crate::shared_limits::SharedLimits;
use crate::survey::{Surveyor, Work};
use crate::world::World;

/// How often faces may redraw and the machine's room is looked at when nothing happens.
const TICK: Duration = Duration::from_millis(200);

/// This machine.
pub struct Threads {
    world: Arc<World>,
    events: Receiver<Event>,
    results: Sender<Event>,
    watch: Watch,
    /// Asks the thread that looks ahead, once there is one.
    surveyor: Option<Sender<Vec<Work>>>,
    /// What all repositories of the user share.
    limits: Option<SharedLimits>,
}

impl Threads {
    /// Fails if jobs cannot be watched.
    pub fn new(
        world: World,
        (results, events): (Sender<Event>, Receiver<Event>),
    ) -> std::io::Result<Self> {
        let seen = results.clone();
        let redactor = world.redactor();
        let watch = Watch::start(move |mut event| {
            if let WatchEvent::Lines { lines, .. } = &mut event {
                // Questions and reasons go to the journal: values go before anybody reads them.
                for line in lines.iter_mut() {
                    if let Cow::Owned(text) = redactor.redact(&line.text) {
                        line.text = text;
                    }
                }
            }
            // The loop ends before its watcher: then nobody needs the news.
            let _ = seen.send(Event::Watch(event));
        })?;
        let limits = SharedLimits::of_user(&world.env, &world.settings);
        Ok(Self { world: Arc::new(world), events, results, watch, surveyor: None, limits })
    }

    fn tell(&self, event: Event) {
        let _ = self.results.send(event);
    }
}

impl Outside for Threads {
    fn now(&mut self) -> Time {
        Time(clock::now_ms())
    }

    fn zone_min(&mut self) -> i32 {
        time::zone_minutes(clock::now_ms())
    }

    fn room(&mut self) -> Result<(), Shortage> {
        room::look(&self.world)
    }

    fn workspace(&self, unit: &str) -> PathBuf {
        self.world.layout.workspace(unit)
    }

    fn start(&mut self, ticket: Ticket, order: Order) {
        let (world, results) = (Arc::clone(&self.world), self.results.clone());
        let run = move || {
            let carried = std::panic::AssertUnwindSafe(|| carry_out(&order, &world, &results));
            if std::panic::catch_unwind(carried).is_err() {
                // The effect stays outstanding for the next life; this one must not wait for it.
                let message = "BUG: an effect broke off; the run stops here".to_owned();
                let _ = results.send(Event::Input(Input::Notice { task: None, message }));
                let _ = results.send(Event::Abandon);
            }
            let _ = results.send(Event::Performed(ticket));
        };
        let thread = std::thread::Builder::new().name("effect".to_owned()).stack_size(512 * 1024);
        if let Err(error) = thread.spawn(run) {
            // No thread to be had now: the effect stays outstanding for the next life, and this
            // one must not wait for it for ever.
            let message = format!("cannot start a thread: {error}");
            self.tell(Event::Input(Input::Notice { task: None, message }));
            self.tell(Event::Abandon);
        }
    }

    fn survey(&mut self, works: Vec<Work>) -> bool {
        let surveyor = self.surveyor.get_or_insert_with(|| {
            let (ask, asked) = mpsc::channel();
            let (world, results) = (Arc::clone(&self.world), self.results.clone());
            let thread = std::thread::Builder::new().name("survey".to_owned());
            // Without a thread nobody hears, and then nothing is seen ahead.
            let _ = thread.stack_size(512 * 1024).spawn(move || survey(&world, &asked, &results));
            ask
        });
        surveyor.send(works).is_ok()
    }

    fn share_limit(&mut self, limit: Parked) {
        if let Some(limits) = &mut self.limits {
            limits.tell(&limit, Time(clock::now_ms()));
        }
    }

    fn forget_limit(&mut self, provider: &str) {
        if let Some(limits) = &mut self.limits {
            limits.forget(provider, Time(clock::now_ms()));
        }
    }

    fn limits_of_others(&mut self) -> Vec<Parked> {
        let now = Time(clock::now_ms());
        self.limits.as_mut().map(|limits| limits.news(now)).unwrap_or_default()
    }

    fn watch(&mut self, key: u64, dir: PathBuf) {
        self.watch.watch(key, dir, 0);
    }

    fn next(&mut self, patience: Option<Duration>) -> Option<Event> {
        self.events.recv_timeout(patience.map_or(TICK, |patience| patience.min(TICK))).ok()
    }

    fn ready(&mut self) -> Option<Event> {
        self.events.try_recv().ok()
    }
}

/// Looks ahead whenever it is asked to. What cannot be seen now is looked at again later.
fn survey(world: &World, asked: &Receiver<Vec<Work>>, results: &Sender<Event>) {
    let mut surveyor = Surveyor::default();
    for works in asked {
        let look = || surveyor.look(&world.repo, &world.target_ref(), &works).ok();
        // Whoever waits for it must hear of it, whatever happens.
        let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(look)).ok().flatten();
        let _ = results.send(Event::Surveyed(seen));
    }
}
