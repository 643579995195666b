//! Git settings without credentials, for agents. Checkouts of CI systems, and people, leave tokens in
//! the addresses of remotes and in headers: whoever reads those can push.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::command::GitCommand;
use super::distrusted_filters::FileStamp;
use super::error::{IoErrorContext, Result};
use super::{Repo, lossy_string, path_from_bytes, split_nul};

/// Shorter ones are words that occur anywhere.
const SECRET_BYTES_MIN: usize = 8;
/// Names that forges want in a secret's place.
const NO_SECRETS: &[&str] = &["x-access-token", "x-oauth-basic", "x-token-auth", "gitlab-ci-token"];
/// Settings that a git folder of an agent's own has otherwise, or not at all.
const OWN: &[&str] = &["core.bare", "core.worktree", "extensions.refstorage"];

/// One setting; no value means true.
type GitSetting = (String, Option<String>);

/// The settings agents may see, with the stamp of the file they come from.
#[derive(Debug, Default)]
pub(super) struct AgentGitSettings(Mutex<Option<(FileStamp, Vec<u8>)>>);

/// A credential in git's settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitCredential {
    /// The setting that has it.
    pub key: String,
    pub value: String,
}

/// Credentials in git's settings and the files that have them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GitCredentials {
    /// Every one of them.
    pub values: Vec<GitCredential>,
    /// Where they are, and what git calls that: `local`, `global`, `system`.
    pub files: Vec<(PathBuf, String)>,
}

impl Repo {
    /// What the repository's own settings say to an agent's git.
    pub(super) fn agent_git_settings(&self) -> Result<Vec<u8>> {
        let file = self.common_dir().join("config");
        let Some(stamp) = FileStamp::of_file(&file) else { return Ok(Vec::new()) };
        let mut kept = self.inner.agent_settings.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, text)) = kept.as_ref()
            && *of == stamp
        {
            return Ok(text.clone());
        }
        let settings = self.read_settings_file(&file)?;
        let own = |(key, _): &GitSetting| !OWN.contains(&key.as_str());
        let text = render_settings(settings.iter().filter(|setting| own(setting)));
        // What another file says can change without this one.
        let alone = settings.iter().all(|(key, _)| !is_include_key(key));
        *kept = alone.then(|| (stamp, text.clone()));
        Ok(text)
    }

    /// The settings in a file, and in those it includes, without credentials.
    pub(super) fn settings_without_credentials(&self, file: &Path) -> Result<Vec<u8>> {
        Ok(render_settings(self.read_settings_file(file)?.iter()))
    }

    /// Writes the settings in all these files, as far as they are there, without credentials to `to`.
    pub fn write_settings_without_credentials(&self, files: &[&PathBuf], to: &Path) -> Result<()> {
        let mut text = Vec::new();
        for file in files.iter().filter(|file| file.is_file()) {
            text.extend(self.settings_without_credentials(file)?);
        }
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder).with_path("create", folder)?;
        }
        crate::files::write_atomic(to, &text).with_path("write", to)
    }

    fn read_settings_file(&self, file: &Path) -> Result<Vec<GitSetting>> {
        let git = self.git().args(["config", "--includes", "-z", "--list", "--file"]).arg(file);
        let answer = git.run()?;
        Ok(split_nul(&answer.stdout).map(parse_setting).collect())
    }

    /// [`Self::find_credentials`] as they were when they were first asked for; none if git's settings make no
    /// sense, which every other command says.
    pub fn cached_credentials(&self) -> &[GitCredential] {
        let known = &self.inner.credentials;
        known.get_or_init(|| self.find_credentials().map(|found| found.values).unwrap_or_default())
    }

    /// All credentials in the settings that git reads here: the system's, the user's, the repository's, and
    /// those of its submodules.
    pub fn find_credentials(&self) -> Result<GitCredentials> {
        let mut found = GitCredentials::default();
        let args = ["config", "--includes", "-z", "--list", "--show-scope", "--show-origin"];
        self.collect_credentials(self.git().args(args), &mut found)?;
        let mut files = vec![self.common_dir().join("config.worktree")];
        for folder in ["modules", "worktrees"] {
            files.extend(find_config_files(&self.common_dir().join(folder)));
        }
        for file in files.iter().filter(|file| file.is_file()) {
            self.collect_credentials(self.git().args(args).arg("--file").arg(file), &mut found)?;
        }
        found.values.sort_by(|a, b| (&a.key, &a.value).cmp(&(&b.key, &b.value)));
        found.values.dedup();
        found.files.sort();
        found.files.dedup();
        Ok(found)
    }

    fn collect_credentials(&self, git: GitCommand, found: &mut GitCredentials) -> Result<()> {
        let answer = git.accept_exit_codes(&[1, 3, 128]).run()?;
        let mut fields = split_nul(&answer.stdout);
        while let (Some(scope), Some(origin), Some(entry)) =
            (fields.next(), fields.next(), fields.next())
        {
            let (key, value) = parse_setting(entry);
            if is_include_key(&key) {
                continue;
            }
            let (kept, secrets) = redact_setting(&key, value.as_deref());
            if kept == Some((key.clone(), value)) {
                continue;
            }
            if let Some(file) = origin.strip_prefix(b"file:") {
                let file = self.common_dir().join(path_from_bytes(file));
                found.files.push((fs::canonicalize(&file).unwrap_or(file), lossy_string(scope)));
            }
            let credential = |value| GitCredential { key: key.clone(), value };
            found.values.extend(secrets.into_iter().map(credential));
        }
        Ok(())
    }
}

/// Files with settings of submodules and worktrees.
fn find_config_files(folder: &Path) -> Vec<PathBuf> {
    /// Submodules of submodules of …: deeper ones are nobody's.
    const DEPTH_MAX: u32 = 8;
    let mut found = Vec::new();
    let mut open = vec![(folder.to_path_buf(), 0)];
    while let Some((folder, depth)) = open.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            let name = entry.file_name();
            // An agent git dir is made without credentials.
            let skipped = ["objects", "refs", "logs", "view", "hooks", "info"];
            if kind.is_dir() && depth < DEPTH_MAX && skipped.iter().all(|skip| name != *skip) {
                open.push((entry.path(), depth + 1));
            } else if kind.is_file() && (name == "config" || name == "config.worktree") {
                found.push(entry.path());
            }
        }
    }
    found
}

fn parse_setting(entry: &[u8]) -> GitSetting {
    let text = lossy_string(entry);
    match text.split_once('\n') {
        Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
        None => (text, None),
    }
}

fn is_include_key(key: &str) -> bool {
    key.starts_with("include.") || key.starts_with("includeif.")
}

/// The last part of a setting's name; git gives it in small letters.
fn last_key_part(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

/// A setting as an agent may see it, if at all, and the secrets that were in it.
fn redact_setting(key: &str, value: Option<&str>) -> (Option<GitSetting>, Vec<String>) {
    let last = last_key_part(key);
    let words = ["token", "password", "passwd", "secret", "smtppass", "apikey"];
    let text = value.unwrap_or_default();
    if last == "extraheader" {
        let parts = text.split_whitespace().map(str::to_owned);
        let words = parts.filter(|word| !word.ends_with(':') && looks_secret(word));
        return (
            None,
            words.chain(Some(text.to_owned()).filter(|all| looks_secret(all))).collect(),
        );
    }
    if words.iter().any(|word| last.contains(word)) || last == "pass" {
        return (
            None,
            Some(text.to_owned()).filter(|text| looks_secret(text)).into_iter().collect(),
        );
    }
    let hidden = ["cookiefile", "sslkey", "askpass", "sshcommand", "gitproxy"];
    if key.starts_with("credential.") || hidden.contains(&last) {
        return (None, Vec::new());
    }
    let mut secrets = Vec::new();
    let key = strip_userinfo(key, &mut secrets);
    let value = value.map(|value| strip_userinfo(value, &mut secrets));
    (Some((key, value)), secrets)
}

fn looks_secret(word: &str) -> bool {
    word.len() >= SECRET_BYTES_MIN && !NO_SECRETS.contains(&word)
}

/// A text without the names and passwords in its addresses. The user of an SSH address is no secret.
fn strip_userinfo(text: &str, secrets: &mut Vec<String>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (scheme, after) = rest.split_at(at + 3);
        let is_end = |c: char| matches!(c, '/' | '?' | '#' | '"' | '\'') || c.is_whitespace();
        let end = after.find(is_end).unwrap_or(after.len());
        let (authority, more) = after.split_at(end);
        out.push_str(scheme);
        rest = more;
        let Some((user, host)) = authority.rsplit_once('@') else {
            out.push_str(authority);
            continue;
        };
        let (name, password) = user.split_once(':').map_or((user, None), |(n, p)| (n, Some(p)));
        let by_ssh = scheme.ends_with("ssh://");
        for part in [Some(name).filter(|_| !by_ssh), password].into_iter().flatten() {
            secrets.extend(Some(part.to_owned()).filter(|part| looks_secret(part)));
        }
        if by_ssh {
            out.push_str(name);
            out.push('@');
        }
        out.push_str(host);
    }
    out + rest
}

/// Settings as a file that git reads.
fn render_settings<'a>(settings: impl Iterator<Item = &'a GitSetting>) -> Vec<u8> {
    let mut out = String::new();
    for (key, value) in settings {
        let (Some((key, value)), _) = redact_setting(key, value.as_deref()) else { continue };
        let Some((section, name)) = key.rsplit_once('.').filter(|_| !is_include_key(&key)) else {
            continue;
        };
        match section.split_once('.') {
            Some((section, sub)) => {
                let sub = sub.replace('\\', "\\\\").replace('"', "\\\"");
                out.push_str(&format!("[{section} \"{sub}\"]\n"));
            }
            None => out.push_str(&format!("[{section}]\n")),
        }
        match value {
            Some(value) => {
                let value = value.replace('\\', "\\\\").replace('"', "\\\"");
                let value = value.replace('\n', "\\n").replace('\t', "\\t");
                out.push_str(&format!("\t{name} = \"{value}\"\n"));
            }
            None => out.push_str(&format!("\t{name}\n")),
        }
    }
    out.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(key: &str, value: &str) -> (Option<String>, Vec<String>) {
        let (kept, secrets) = redact_setting(key, Some(value));
        (kept.map(|(key, value)| format!("{key}={}", value.unwrap_or_default())), secrets)
    }

    #[test]
    fn addresses_lose_names_and_passwords_and_nothing_else() {
        for (value, left, secrets) in [
            (
                "https://x:s3cr3t-t0ken@h.invalid/a/b.git",
                "https://h.invalid/a/b.git",
                vec!["s3cr3t-t0ken"],
            ),
            ("https://ghp_0123456789@h/a", "https://h/a", vec!["ghp_0123456789"]),
            ("https://x-access-token:tok-tok-tok@h/a", "https://h/a", vec!["tok-tok-tok"]),
            ("ssh://git@h:22/a", "ssh://git@h:22/a", vec![]),
            ("git@h:a/b.git", "git@h:a/b.git", vec![]),
            ("https://h/a@b", "https://h/a@b", vec![]),
            ("/a/path", "/a/path", vec![]),
        ] {
            let (kept, found) = seen("remote.origin.url", value);
            assert_eq!(kept, Some(format!("remote.origin.url={left}")));
            assert_eq!(found, secrets);
        }
        let (kept, found) = seen("url.https://t0ken-t0ken@h/.insteadof", "https://h/");
        assert_eq!(kept.as_deref(), Some("url.https://h/.insteadof=https://h/"));
        assert_eq!(found, ["t0ken-t0ken"]);
    }

    #[test]
    fn headers_helpers_and_passwords_are_left_out() {
        let (kept, found) =
            seen("http.https://h/.extraheader", "AUTHORIZATION: basic aGVhZGVyLXNlY3JldA==");
        assert_eq!(kept, None);
        assert!(found.iter().any(|value| value == "aGVhZGVyLXNlY3JldA=="), "{found:?}");
        for key in [
            "credential.helper",
            "credential.https://h.helper",
            "sendemail.smtppass",
            "github.token",
            "core.askpass",
        ] {
            assert_eq!(seen(key, "anything-at-all").0, None, "{key}");
        }
        assert!(seen("user.name", "Some One").0.is_some());
    }

    #[test]
    fn what_is_written_is_quoted() {
        let all = [
            ("core.bare".to_owned(), None),
            ("remote.a\"b.url".to_owned(), Some("x # \"y\" \\z\n".to_owned())),
        ];
        let text = String::from_utf8(render_settings(all.iter())).unwrap_or_default();
        assert_eq!(
            text,
            "[core]\n\tbare\n[remote \"a\\\"b\"]\n\turl = \"x # \\\"y\\\" \\\\z\\n\"\n"
        );
    }
}
