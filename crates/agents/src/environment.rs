//! Which of the engine's variables an agent process gets to see.
//!
//! An allow-list, and a deny-list that holds even against it; then the secrets that the agent's
//! settings name on purpose. Reads no environment: all variables come in, the allowed ones go out.

use std::collections::BTreeMap;

/// Where programs, home, language, caches and certificates are.
const ALLOWED: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TERM",
    "TZ",
    "TMPDIR",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "NVM_DIR",
    "NVM_BIN",
    "FNM_DIR",
    "VOLTA_HOME",
    "PNPM_HOME",
    "BUN_INSTALL",
    "DENO_DIR",
    "PYENV_ROOT",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "RBENV_ROOT",
    "GEM_HOME",
    "GEM_PATH",
    "GOPATH",
    "GOROOT",
    "GOCACHE",
    "GOMODCACHE",
    "JAVA_HOME",
    "ANDROID_HOME",
    "SDKMAN_DIR",
    "DOTNET_ROOT",
    "ASDF_DIR",
    "ASDF_DATA_DIR",
    "MISE_DATA_DIR",
    "NIX_PATH",
    "NIX_PROFILES",
    "NIX_SSL_CERT_FILE",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "CURL_CA_BUNDLE",
    "REQUESTS_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
];
const ALLOWED_PREFIXES: &[&str] = &["LC_", "XDG_"];

/// Needed behind a proxy, but their values may carry a password.
const PROXIES: &[&str] = &["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"];

const DENIED_ENDS: &[&str] = &["_KEY", "_SECRET", "_TOKEN", "_PASSWORD", "_API_KEY"];
/// Git's own variables would point an agent's git at another repository; the loader's would run
/// foreign code in every child.
const DENIED_PREFIXES: &[&str] = &["GIT_", "LD_", "DYLD_", "PYTHON"];
const DENIED: &[&str] = &[
    "NODE_OPTIONS",
    "BASH_ENV",
    "ENV",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "PERL5OPT",
    "PERL5LIB",
    "RUBYOPT",
    "JAVA_TOOL_OPTIONS",
];

/// The environment of an agent process, and what could not be put into it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AgentEnvironment {
    pub vars: BTreeMap<String, String>,
    /// Secrets that the settings name and that are not set, in the order named.
    pub missing: Vec<String>,
}

/// Reduces `all` to what an agent may see, adds the named `secrets`, then `extra` on top.
pub fn allowed_environment(
    all: impl Iterator<Item = (String, String)>,
    secrets: &[String],
    extra: &BTreeMap<String, String>,
) -> AgentEnvironment {
    let mut vars = BTreeMap::new();
    let mut found = BTreeMap::new();
    for (name, value) in all {
        if secrets.contains(&name) {
            found.insert(name, value);
        } else if is_allowed_variable(&name, &value) {
            vars.insert(name, value);
        }
    }
    // An empty secret is the same trouble as none, and easier to miss.
    found.retain(|_, value| !value.is_empty());
    vars.append(&mut found);
    vars.extend(extra.iter().map(|(name, value)| (name.clone(), value.clone())));
    let missing = secrets.iter().filter(|name| !vars.contains_key(*name)).cloned().collect();
    AgentEnvironment { vars, missing }
}

fn is_allowed_variable(name: &str, value: &str) -> bool {
    if is_denied_variable(name) {
        return false;
    }
    if PROXIES.iter().any(|proxy| proxy.eq_ignore_ascii_case(name)) {
        return !value.contains('@');
    }
    ALLOWED.contains(&name) || ALLOWED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// True for names that carry secrets or steer programs behind a person's back.
pub fn is_denied_variable(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    DENIED.contains(&name.as_str())
        || name.contains("CREDENTIAL")
        || DENIED_ENDS.iter().any(|end| name.ends_with(end))
        || DENIED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reduce(all: &[(&str, &str)], secrets: &[&str], extra: &[(&str, &str)]) -> AgentEnvironment {
        let own = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<Vec<_>>()
        };
        let secrets: Vec<String> = secrets.iter().map(|name| (*name).to_owned()).collect();
        allowed_environment(own(all).into_iter(), &secrets, &own(extra).into_iter().collect())
    }

    fn names(environment: &AgentEnvironment) -> Vec<&str> {
        environment.vars.keys().map(String::as_str).collect()
    }

    #[test]
    fn only_listed_names_pass() {
        let all = [
            ("PATH", "/bin"),
            ("HOME", "/h"),
            ("LC_ALL", "C"),
            ("XDG_CACHE_HOME", "/c"),
            ("CARGO_HOME", "/cargo"),
            ("EDITOR", "vi"),
            ("SSH_AUTH_SOCK", "/s"),
            ("MAINSTEM_JOBS", "3"),
            ("path", "lower"),
        ];
        let reduced = reduce(&all, &[], &[]);
        assert_eq!(names(&reduced), ["CARGO_HOME", "HOME", "LC_ALL", "PATH", "XDG_CACHE_HOME"]);
        assert!(reduced.missing.is_empty());
    }

    #[test]
    fn denied_names_are_dropped_even_under_an_allowed_prefix() {
        for name in [
            "ANTHROPIC_API_KEY",
            "XDG_SESSION_TOKEN",
            "LC_DB_PASSWORD",
            "XDG_CREDENTIALS_FILE",
            "xdg_client_secret",
            "GIT_DIR",
            "GIT_CONFIG_GLOBAL",
            "LD_PRELOAD",
            "DYLD_INSERT_LIBRARIES",
            "NODE_OPTIONS",
            "BASH_ENV",
            "ENV",
        ] {
            assert!(is_denied_variable(name), "{name}");
            assert!(names(&reduce(&[(name, "x")], &[], &[])).is_empty(), "{name}");
        }
        for name in ["PATH", "TERM", "XDG_RUNTIME_DIR", "LANG", "GITHUB", "ENVIRONMENT"] {
            assert!(!is_denied_variable(name), "{name}");
        }
    }

    #[test]
    fn named_secrets_come_in_and_missing_ones_are_said() {
        let all = [("A_KEY", "one"), ("B_TOKEN", "two"), ("C_KEY", "")];
        let reduced = reduce(&all, &["A_KEY", "C_KEY", "D_KEY"], &[]);
        assert_eq!(names(&reduced), ["A_KEY"]);
        assert_eq!(reduced.missing, ["C_KEY", "D_KEY"]);
    }

    #[test]
    fn added_variables_win_and_can_fill_in_a_secret() {
        let reduced =
            reduce(&[("HOME", "/h")], &["A_KEY"], &[("HOME", "/other"), ("A_KEY", "given")]);
        assert_eq!(reduced.vars["HOME"], "/other");
        assert_eq!(reduced.vars["A_KEY"], "given");
        assert!(reduced.missing.is_empty());
    }

    #[test]
    fn a_proxy_passes_unless_it_carries_a_password() {
        let all = [("https_proxy", "http://p:3128"), ("HTTP_PROXY", "http://me:pw@p:3128")];
        assert_eq!(names(&reduce(&all, &[], &[])), ["https_proxy"]);
    }
}
