//! The outside as it is: the system's clock, a thread per effect, one thread that watches jobs.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use mainstem_api::time;
use mainstem_core::capacity::CapacityShortage;
use mainstem_core::id::Time;
use mainstem_core::machine::Input;
use mainstem_host::clock;
use mainstem_host::process::{JobWatch, WatchEvent};
use mainstem_planner::draft::DraftRateLimit;

use crate::capacity_probe;
use crate::conflict_forecast::{ConflictForecaster, ForecastWork};
use crate::effect_queue::EffectTicket;
use crate::effects::{EffectOrder, carry_out_order};
use crate::engine_context::EngineContext;
use crate::engine_host::EngineHost;
use crate::event::EngineEvent;
use crate::shared_limits::SharedLimits;

/// How often faces may redraw and the machine's room is looked at when nothing happens.
const TICK: Duration = Duration::from_millis(200);

pub struct ThreadedHost {
    world: Arc<EngineContext>,
    events: Receiver<EngineEvent>,
    results: Sender<EngineEvent>,
    job_watch: JobWatch,
    /// Asks the thread that looks ahead, once there is one.
    forecast_requests: Option<Sender<Vec<ForecastWork>>>,
    /// What all repositories of the user share.
    limits: Option<SharedLimits>,
}

impl ThreadedHost {
    /// Fails if jobs cannot be watched.
    pub fn new(
        world: EngineContext,
        (results, events): (Sender<EngineEvent>, Receiver<EngineEvent>),
    ) -> std::io::Result<Self> {
        let seen = results.clone();
        let redactor = world.build_redactor();
        let watch = JobWatch::start(move |mut event| {
            if let WatchEvent::Lines { lines, .. } = &mut event {
                // Questions and reasons go to the journal: values go before anybody reads them.
                for line in lines.iter_mut() {
                    if let Cow::Owned(text) = redactor.redact_bytes(&line.text) {
                        line.text = text;
                    }
                }
            }
            // The loop ends before its watcher: then nobody needs the news.
            let _ = seen.send(EngineEvent::JobWatched(event));
        })?;
        let limits = SharedLimits::open_for_user(&world.env, &world.settings);
        Ok(Self {
            world: Arc::new(world),
            events,
            results,
            job_watch: watch,
            forecast_requests: None,
            limits,
        })
    }

    fn send_event(&self, event: EngineEvent) {
        let _ = self.results.send(event);
    }
}

impl EngineHost for ThreadedHost {
    fn now(&mut self) -> Time {
        Time(clock::now_ms())
    }

    fn utc_offset_min(&mut self) -> i32 {
        time::zone_minutes(clock::now_ms())
    }

    fn check_capacity(&mut self) -> Result<(), CapacityShortage> {
        capacity_probe::check_capacity(&self.world)
    }

    fn workspace_path(&self, unit: &str) -> PathBuf {
        self.world.layout.workspace_path(unit)
    }

    fn start_effect(&mut self, ticket: EffectTicket, order: EffectOrder) {
        let (world, results) = (Arc::clone(&self.world), self.results.clone());
        let run = move || {
            let carried =
                std::panic::AssertUnwindSafe(|| carry_out_order(&order, &world, &results));
            if std::panic::catch_unwind(carried).is_err() {
                // The effect stays outstanding for the next life; this one must not wait for it.
                let message = "BUG: an effect broke off; the run stops here".to_owned();
                let _ = results.send(EngineEvent::Input(Input::Notice { task: None, message }));
                let _ = results.send(EngineEvent::Abandon);
            }
            let _ = results.send(EngineEvent::Performed(ticket));
        };
        let thread = std::thread::Builder::new().name("effect".to_owned()).stack_size(512 * 1024);
        if let Err(error) = thread.spawn(run) {
            // No thread to be had now: the effect stays outstanding for the next life, and this
            // one must not wait for it for ever.
            let message = format!("cannot start a thread: {error}");
            self.send_event(EngineEvent::Input(Input::Notice { task: None, message }));
            self.send_event(EngineEvent::Abandon);
        }
    }

    fn start_forecast(&mut self, works: Vec<ForecastWork>) -> bool {
        let surveyor = self.forecast_requests.get_or_insert_with(|| {
            let (ask, asked) = mpsc::channel();
            let (world, results) = (Arc::clone(&self.world), self.results.clone());
            let thread = std::thread::Builder::new().name("survey".to_owned());
            // Without a thread nobody hears, and then nothing is seen ahead.
            let _ = thread
                .stack_size(512 * 1024)
                .spawn(move || run_forecasts(&world, &asked, &results));
            ask
        });
        surveyor.send(works).is_ok()
    }

    fn share_limit(&mut self, limit: DraftRateLimit) {
        if let Some(limits) = &mut self.limits {
            limits.publish_limit(&limit, Time(clock::now_ms()));
        }
    }

    fn forget_limit(&mut self, provider: &str) {
        if let Some(limits) = &mut self.limits {
            limits.remove_limit(provider, Time(clock::now_ms()));
        }
    }

    fn read_shared_limits(&mut self) -> Vec<DraftRateLimit> {
        let now = Time(clock::now_ms());
        self.limits.as_mut().map(|limits| limits.read_new_limits(now)).unwrap_or_default()
    }

    fn watch_job(&mut self, key: u64, dir: PathBuf) {
        self.job_watch.watch_job(key, dir, 0);
    }

    fn next_event(&mut self, patience: Option<Duration>) -> Option<EngineEvent> {
        self.events.recv_timeout(patience.map_or(TICK, |patience| patience.min(TICK))).ok()
    }

    fn ready_event(&mut self) -> Option<EngineEvent> {
        self.events.try_recv().ok()
    }
}

/// Looks ahead whenever it is asked to. What cannot be seen now is looked at again later.
fn run_forecasts(
    world: &EngineContext,
    asked: &Receiver<Vec<ForecastWork>>,
    results: &Sender<EngineEvent>,
) {
    let mut surveyor = ConflictForecaster::default();
    for works in asked {
        let look = || surveyor.forecast_conflicts(&world.repo, &world.target_ref(), &works).ok();
        // Whoever waits for it must hear of it, whatever happens.
        let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(look)).ok().flatten();
        let _ = results.send(EngineEvent::ForecastMade(seen));
    }
}
