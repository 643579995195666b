//! What all repositories of one user share about providers: limits, used-up quotas and pauses after repeated
//! failures, met by runs and by drafts. One small file below the user's state folder, where no sandboxed agent can
//! write.
//!
//! A wait belongs to a provider and an account. Repositories that give the same secrets to a provider's agents use the
//! same account; the file holds a fingerprint of the secrets, never their values.
//!
//! The file is a help, never a need: one that is missing, broken or busy costs nothing but a request too many. What
//! the file says is believed only within bounds, because programs without a sandbox can write it, too.

use std::collections::{BTreeMap, BTreeSet};

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
use sha2::{Digest, Sha256};

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
    /// Empty for the account that the agent's program is logged in with.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    account: String,
    kind: LimitKind,
    until_ms: i64,
    #[serde(default)]
    message: String,
}

impl SharedLimitEntry {
    fn is_same_account(&self, other: &Self) -> bool {
        self.provider == other.provider && self.account == other.account
    }
}

/// The limits of one user.
#[derive(Debug)]
pub struct SharedLimits {
    folder: PathBuf,
    /// Providers whose name means the same in every repository, each with the account that is used here.
    accounts: BTreeMap<String, String>,
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
        let mut secrets: BTreeMap<String, BTreeSet<&(String, String)>> = BTreeMap::new();
        for (name, agent) in named {
            let given = env.iter().filter(|(key, _)| agent.secrets.contains(key));
            secrets.entry(agent.provider_name(name)).or_default().extend(given);
        }
        let accounts: BTreeMap<String, String> = secrets
            .into_iter()
            .map(|(provider, given)| (provider, fingerprint_account(&given)))
            .collect();
        let wanted = settings.limits.shared && !accounts.is_empty();
        wanted.then(|| Self { folder: state.join("mainstem"), accounts, seen: None })
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

    /// An entry within bounds; none if it is over, nonsense or not about a provider and account of ours.
    fn validate_entry(&self, entry: SharedLimitEntry, now: Time) -> Option<DraftRateLimit> {
        let most = match entry.kind {
            LimitKind::Quota => QUOTA_MS_MAX,
            LimitKind::Rate | LimitKind::Breaker => RATE_MS_MAX,
        };
        let until = Time(entry.until_ms).min(now.plus_ms(most));
        let ours = self.accounts.get(&entry.provider) == Some(&entry.account);
        let message =
            format!("reported by another repository: {}", limits::clip_for_fact(&entry.message));
        let SharedLimitEntry { provider, kind, .. } = entry;
        (ours && until > now).then_some(DraftRateLimit { provider, kind, until, message })
    }

    /// Writes a limit down for others.
    pub fn publish_limit(&mut self, limit: &DraftRateLimit, now: Time) {
        let Some(account) = self.accounts.get(&limit.provider).cloned() else { return };
        if limit.until <= now {
            return;
        }
        let DraftRateLimit { provider, kind, until, message } = limit;
        let (provider, kind, until_ms) = (provider.clone(), *kind, until.0);
        let message = message.chars().take(500).collect();
        let new = SharedLimitEntry { provider, account, kind, until_ms, message };
        let is_known = |entries: &[SharedLimitEntry]| {
            entries.iter().any(|had| had.is_same_account(&new) && had.until_ms >= new.until_ms)
        };
        // Writing what is known already would wake every reader, and a reader that repeats it would never stop.
        if is_known(&read_entries(&self.file_path())) {
            return;
        }
        self.update_file(now, |entries| {
            if !is_known(entries) {
                entries.retain(|had| !had.is_same_account(&new));
                entries.push(new.clone());
            }
        });
    }

    /// A person says that a provider may be used again.
    pub fn remove_limit(&mut self, provider: &str, now: Time) {
        if self.file_path().exists() {
            let account = self.accounts.get(provider).cloned().unwrap_or_default();
            self.update_file(now, |entries| {
                entries.retain(|entry| entry.provider != provider || entry.account != account);
            });
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

/// A name for the account behind these secrets that does not give their values away; empty without secrets.
fn fingerprint_account(secrets: &BTreeSet<&(String, String)>) -> String {
    if secrets.is_empty() {
        return String::new();
    }
    let mut hash = Sha256::new_with_prefix("mainstem account\0");
    for (name, value) in secrets {
        hash.update(format!("{}:{name}={}:{value}\0", name.len(), value.len()));
    }
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
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
        let is_plain =
            |name: &str| name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control);
        !entry.provider.is_empty() && is_plain(&entry.provider) && is_plain(&entry.account)
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
        with_key(home, None)
    }

    fn with_key(home: &Path, key: Option<&str>) -> SharedLimits {
        let mut env = vec![("XDG_STATE_HOME".to_owned(), home.display().to_string())];
        env.extend(key.map(|key| ("ACME_KEY".to_owned(), key.to_owned())));
        let mut settings = resolve_settings(&[]).unwrap().settings;
        let named = AgentSettings { provider: Some("acme".into()), ..AgentSettings::default() };
        let named = AgentSettings { secrets: vec!["ACME_KEY".into()], ..named };
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
    fn accounts_of_one_provider_do_not_wait_for_each_other() {
        let home = tempfile::tempdir().unwrap();
        let key = |key: &str| with_key(home.path(), Some(key));
        key("one").publish_limit(&limit("acme", LimitKind::Breaker, 60_000), NOW);
        assert_eq!(key("one").read_new_limits(NOW).len(), 1);
        assert!(key("two").read_new_limits(NOW).is_empty());
        assert!(of(home.path()).read_new_limits(NOW).is_empty(), "another login");
        let file = std::fs::read_to_string(home.path().join("mainstem/limits.json")).unwrap();
        assert!(!file.contains("one"), "{file}");
        key("two").publish_limit(&limit("acme", LimitKind::Rate, 90_000), NOW);
        assert_eq!(key("one").read_new_limits(NOW)[0].until, NOW.plus_ms(60_000));
        key("two").remove_limit("acme", NOW);
        assert!(key("two").read_new_limits(NOW).is_empty());
        assert_eq!(key("one").read_new_limits(NOW).len(), 1, "a person spoke of one account");
    }

    #[test]
    fn what_is_known_already_is_not_written_again() {
        let home = tempfile::tempdir().unwrap();
        let (mut a, mut b) = (of(home.path()), of(home.path()));
        a.publish_limit(&limit("acme", LimitKind::Breaker, 60_000), NOW);
        let heard = b.read_new_limits(NOW).remove(0);
        let file = home.path().join("mainstem/limits.json");
        let before = (file.metadata().unwrap().ino(), std::fs::read(&file).unwrap());
        b.publish_limit(&heard, NOW);
        assert_eq!((file.metadata().unwrap().ino(), std::fs::read(&file).unwrap()), before);
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
