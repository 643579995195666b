//! Limits of providers that all repositories of one user share: one small file below the user's state
//! folder, where no sandboxed agent can write.
//!
//! A help, never a need: a file that is missing, broken or busy costs nothing but a request too many. What
//! it says is believed only within bounds, because programs without a sandbox can write it, too.

use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use mainstem_core::config::Settings;
use mainstem_core::fact::LimitKind;
use mainstem_core::id::Time;
use mainstem_core::limits;
use mainstem_host::files;
use mainstem_host::lock::{LockOutcome, OwnerLock};
use mainstem_planner::draft::DraftRateLimit;
use serde::{Deserialize, Serialize};

const FILE: &str = "limits.json";
const LOCK: &str = "limits.lock";
/// Longer files are not ours.
const BYTES_MAX: u64 = 64 * 1024;
/// More limits than anybody has providers.
const ENTRIES_MAX: usize = 64;
/// Longest name of a provider.
const NAME_BYTES_MAX: usize = 100;
/// Longest wait that is taken over from another repository. Whoever tries after it and is refused again
/// writes it down anew.
const RATE_MS_MAX: u64 = 30 * 60 * 1000;
const QUOTA_MS_MAX: u64 = 6 * 3600 * 1000;

#[derive(Debug, Default, Serialize, Deserialize)]
struct SharedLimitsFile {
    #[serde(default)]
    limits: Vec<SharedLimitEntry>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct SharedLimitEntry {
    provider: String,
    kind: LimitKind,
    until_ms: i64,
    #[serde(default)]
    message: String,
}

/// The limits of one user.
#[derive(Debug)]
pub struct SharedLimits {
    folder: PathBuf,
    /// Providers whose name means the same in every repository.
    providers: Vec<String>,
    /// The file as it was last read: when it was changed, and how long it was.
    seen: Option<(i64, i64, u64)>,
}

impl SharedLimits {
    /// Those of the user with these variables; none if the settings do not want it or nothing is shared.
    pub fn open_for_user(env: &[(String, String)], settings: &Settings) -> Option<Self> {
        let variable = |name: &str| {
            let found = env.iter().find(|(key, _)| key == name).map(|(_, value)| value);
            found.map(PathBuf::from).filter(|path| path.is_absolute())
        };
        let state = variable("XDG_STATE_HOME")
            .or_else(|| variable("HOME").map(|home| home.join(".local/state")))?;
        let agents = settings.agents.iter();
        // The name of a command agent says nothing outside its own repository.
        let named = agents.filter(|(name, agent)| {
            agent.provider.is_some() || agent.provider_name(name) != **name
        });
        let providers: Vec<String> = named.map(|(name, agent)| agent.provider_name(name)).collect();
        let wanted = settings.limits.shared && !providers.is_empty();
        wanted.then(|| Self { folder: state.join("mainstem"), providers, seen: None })
    }

    fn file_path(&self) -> PathBuf {
        self.folder.join(FILE)
    }

    /// Limits in force that were written down since this was last asked.
    pub fn read_new_limits(&mut self, now: Time) -> Vec<DraftRateLimit> {
        let stamp = std::fs::symlink_metadata(self.file_path())
            .map(|meta| (meta.mtime(), meta.mtime_nsec(), meta.len()))
            .ok();
        if stamp.is_none() || stamp == self.seen {
            return Vec::new();
        }
        self.seen = stamp;
        let entries = read_entries(&self.file_path()).into_iter();
        entries.filter_map(|entry| self.validate_entry(entry, now)).collect()
    }

    /// An entry within bounds; none if it is over, nonsense or not about a provider of ours.
    fn validate_entry(&self, entry: SharedLimitEntry, now: Time) -> Option<DraftRateLimit> {
        let most = match entry.kind {
            LimitKind::Quota => QUOTA_MS_MAX,
            LimitKind::Rate | LimitKind::Breaker => RATE_MS_MAX,
        };
        let until = Time(entry.until_ms).min(now.plus_ms(most));
        let ours = self.providers.contains(&entry.provider);
        let message =
            format!("reported by another repository: {}", limits::clip_for_fact(&entry.message));
        let SharedLimitEntry { provider, kind, .. } = entry;
        (ours && until > now).then_some(DraftRateLimit { provider, kind, until, message })
    }

    /// Writes a limit down for others.
    pub fn publish_limit(&mut self, limit: &DraftRateLimit, now: Time) {
        if !self.providers.contains(&limit.provider) || limit.until <= now {
            return;
        }
        let DraftRateLimit { provider, kind, until, message } = limit;
        let (provider, kind, until_ms) = (provider.clone(), *kind, until.0);
        let message = message.chars().take(500).collect();
        let new = SharedLimitEntry { provider, kind, until_ms, message };
        self.update_file(now, |entries| {
            let had = entries.iter_mut().find(|had| had.provider == new.provider);
            match had {
                Some(had) if had.until_ms >= new.until_ms => {}
                Some(had) => *had = new,
                None => entries.push(new),
            }
        });
    }

    /// A person says that a provider may be used again.
    pub fn remove_limit(&mut self, provider: &str, now: Time) {
        if self.file_path().exists() {
            self.update_file(now, |entries| entries.retain(|entry| entry.provider != provider));
        }
    }

    /// Changes the file, if nobody else holds it for long. What goes wrong costs nothing but a request.
    fn update_file(&mut self, now: Time, change: impl FnOnce(&mut Vec<SharedLimitEntry>)) {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder);
        let body = serde_json::json!({"pid": std::process::id()});
        let lock = made.ok().and_then(|()| OwnerLock::acquire(&self.folder.join(LOCK), &body).ok());
        let Some(LockOutcome::Held(_lock)) = lock else { return };
        let mut page = SharedLimitsFile { limits: read_entries(&self.file_path()) };
        page.limits.retain(|entry| entry.until_ms > now.0);
        change(&mut page.limits);
        page.limits.truncate(ENTRIES_MAX);
        if let Ok(text) = serde_json::to_vec_pretty(&page)
            && files::write_atomic(&self.file_path(), &text).is_ok()
        {
            let _ =
                std::fs::set_permissions(self.file_path(), std::fs::Permissions::from_mode(0o600));
        }
    }
}

/// What the file says; nothing if it is not a plain file of ours that only we can write.
fn read_entries(path: &Path) -> Vec<SharedLimitEntry> {
    let Ok(meta) = std::fs::symlink_metadata(path) else { return Vec::new() };
    let ours = meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & 0o022 == 0;
    if !ours || meta.len() > BYTES_MAX {
        return Vec::new();
    }
    let bytes = files::read_regular_file(path, BYTES_MAX).unwrap_or_default();
    let page: SharedLimitsFile = serde_json::from_slice(&bytes).unwrap_or_default();
    let sound = |entry: &SharedLimitEntry| {
        let name = &entry.provider;
        !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control)
    };
    page.limits.into_iter().filter(sound).take(ENTRIES_MAX).collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use mainstem_core::config::AgentSettings;
    use mainstem_core::config::layers::resolve_settings;

    use super::*;

    const NOW: Time = Time(1_800_000_000_000);

    fn of(home: &Path) -> SharedLimits {
        let env = [("XDG_STATE_HOME".to_owned(), home.display().to_string())];
        let mut settings = resolve_settings(&[]).unwrap().settings;
        let named = AgentSettings { provider: Some("acme".into()), ..AgentSettings::default() };
        settings.agents.insert("w".into(), AgentSettings { kind: "command".into(), ..named });
        let own = AgentSettings { kind: "command".into(), ..AgentSettings::default() };
        settings.agents.insert("local".into(), own);
        SharedLimits::open_for_user(&env, &settings).unwrap()
    }

    fn limit(provider: &str, kind: LimitKind, wait_ms: u64) -> DraftRateLimit {
        let (provider, message) = (provider.to_owned(), "429".to_owned());
        DraftRateLimit { provider, kind, until: NOW.plus_ms(wait_ms), message }
    }

    #[test]
    fn what_one_repository_meets_the_other_is_told_once() {
        let home = tempfile::tempdir().unwrap();
        let (mut a, mut b) = (of(home.path()), of(home.path()));
        assert!(b.read_new_limits(NOW).is_empty());
        a.publish_limit(&limit("acme", LimitKind::Rate, 60_000), NOW);
        let news = b.read_new_limits(NOW);
        assert_eq!((news[0].provider.as_str(), news[0].until), ("acme", NOW.plus_ms(60_000)));
        assert!(b.read_new_limits(NOW).is_empty(), "nothing new");
        // A shorter wait takes nothing back, and what is over is gone.
        a.publish_limit(&limit("acme", LimitKind::Rate, 10), NOW);
        assert_eq!(of(home.path()).read_new_limits(NOW)[0].until, NOW.plus_ms(60_000));
        assert!(of(home.path()).read_new_limits(NOW.plus_ms(60_001)).is_empty());
        a.remove_limit("acme", NOW);
        assert!(of(home.path()).read_new_limits(NOW).is_empty(), "a person said to try again");
    }

    #[test]
    fn the_name_of_a_command_agent_is_no_provider_of_others() {
        let home = tempfile::tempdir().unwrap();
        of(home.path()).publish_limit(&limit("local", LimitKind::Rate, 60_000), NOW);
        assert!(!home.path().join("mainstem").exists());
    }

    #[test]
    fn what_the_file_says_is_believed_only_within_bounds() {
        let home = tempfile::tempdir().unwrap();
        let mut a = of(home.path());
        a.publish_limit(&limit("acme", LimitKind::Quota, 365 * 24 * 3_600_000), NOW);
        assert_eq!(of(home.path()).read_new_limits(NOW)[0].until, NOW.plus_ms(QUOTA_MS_MAX));
        let file = home.path().join("mainstem/limits.json");
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&file), mode(&home.path().join("mainstem"))), (0o600, 0o700));
        for text in ["", "{", "[]", "{\"limits\":7}", "{\"limits\":[{\"provider\":\"acme\"}]}"] {
            std::fs::write(&file, text).unwrap();
            assert!(of(home.path()).read_new_limits(NOW).is_empty(), "{text}");
        }
        a.publish_limit(&limit("acme", LimitKind::Rate, 60_000), NOW);
        assert_eq!(of(home.path()).read_new_limits(NOW).len(), 1, "a broken file is replaced");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
        assert!(of(home.path()).read_new_limits(NOW).is_empty(), "anybody can write it");
        std::fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
        assert!(of(home.path()).read_new_limits(NOW).is_empty(), "a link is not followed");
    }
}
