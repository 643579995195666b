//! What no agent, setup command or gate may see of the machine: files with credentials, and the sockets of programs
//! that would do for it what its sandbox forbids.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use mainstem_agents::known_agents::KNOWN;
use mainstem_host::files;

/// Keys, credentials and histories below the home folder.
const SECRET_PLACES: &[&str] = &[
    ".ssh",
    ".aws",
    ".gnupg",
    ".azure",
    ".netrc",
    ".docker",
    ".kube",
    ".git-credentials",
    ".pypirc",
    ".cargo/credentials.toml",
    ".cargo/credentials",
    ".password-store",
    ".mozilla",
    ".thunderbird",
    ".pgpass",
    ".my.cnf",
    ".vault-token",
    ".terraform.d/credentials.tfrc.json",
    ".gem/credentials",
    ".composer/auth.json",
    ".s3cfg",
    ".boto",
    ".oci",
    ".fly",
    ".m2/settings-security.xml",
    ".Xauthority",
    ".ICEauthority",
    ".bash_history",
    ".zsh_history",
    ".python_history",
    ".node_repl_history",
    ".psql_history",
    ".mysql_history",
    ".sqlite_history",
];

/// The same below the folder of settings, `~/.config` unless a variable names another.
const SECRET_SETTINGS: &[&str] = &[
    "gh",
    "hub",
    "glab-cli",
    "gcloud",
    "git/credentials",
    "containers/auth.json",
    "composer/auth.json",
    "rclone",
    "op",
    "doctl",
    "heroku",
    "netlify",
    "sops/age",
    "google-chrome",
    "chromium",
    "BraveSoftware",
    "mainstem",
];

/// The same below the folder of data, `~/.local/share` unless a variable names another.
const SECRET_DATA: &[&str] = &["keyrings", "kwalletd", "fish/fish_history"];

/// Variables that name a file or folder with credentials.
const SECRET_VARIABLES: &[&str] = &[
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_CONFIG_FILE",
    "AZURE_CONFIG_DIR",
    "CLOUDSDK_CONFIG",
    "DOCKER_CONFIG",
    "GH_CONFIG_DIR",
    "GNUPGHOME",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "KUBECONFIG",
    "NETRC",
    "PASSWORD_STORE_DIR",
    "PGPASSFILE",
    "SOPS_AGE_KEY_FILE",
    "XAUTHORITY",
];

/// Settings that tools need, and the words by which one knows that they hold credentials as well.
const MIXED_FILES: &[(&str, &[&str])] = &[
    (".npmrc", &["_auth", "_password"]),
    (".yarnrc.yml", &["npmAuthToken", "npmAuthIdent"]),
    (".wgetrc", &["password"]),
    (".curlrc", &["user", "header", "oauth2-bearer"]),
];
/// More than such a file ever has.
const MIXED_BYTES_MAX: u64 = 1 << 20;

/// Sockets of daemons that do as root what they are told.
const DAEMONS: &[&str] = &[
    "/run/docker.sock",
    "/var/run/docker.sock",
    "/run/containerd/containerd.sock",
    "/run/podman/podman.sock",
    "/run/crio/crio.sock",
    "/var/lib/lxd/unix.socket",
    "/var/lib/incus/unix.socket",
    "/var/snap/lxd/common/lxd/unix.socket",
    "/run/libvirt/libvirt-sock",
    "/run/systemd/private",
    "/run/dbus/system_bus_socket",
];

/// Variables that name a socket, or an address with one in it.
const SOCKET_VARIABLES: &[&str] = &[
    "SSH_AUTH_SOCK",
    "DBUS_SESSION_BUS_ADDRESS",
    "DOCKER_HOST",
    "CONTAINER_HOST",
    "TMUX",
    "NVIM",
    "NVIM_LISTEN_ADDRESS",
    "KITTY_LISTEN_ON",
    "WEZTERM_UNIX_SOCKET",
    "ALACRITTY_SOCKET",
    "VSCODE_IPC_HOOK_CLI",
    "VSCODE_GIT_IPC_HANDLE",
];

/// How entries of temporary folders begin in which programs of a user's session listen: terminal multiplexers,
/// displays, key holders, editors. Who can talk to one of them types commands as that user.
const SESSION_NAMES: &[&str] = &[
    "tmux-",
    ".X11-unix",
    ".ICE-unix",
    "ssh-",
    "emacs",
    "dbus-",
    "screens",
    "uscreens",
    "kitty",
    "vscode-",
    "nvim",
    "gpg-",
];

/// How deep sockets lie in a folder of a session.
const SOCKET_DEPTH: usize = 3;
/// A folder of a session has not so many entries.
const SOCKET_ENTRIES_MAX: usize = 500;

type Env = BTreeMap<String, String>;

fn absolute(env: &Env, name: &str) -> Option<PathBuf> {
    env.get(name).map(PathBuf::from).filter(|path| path.is_absolute())
}

/// Files and folders with credentials.
pub(crate) fn secrets(env: &Env) -> Vec<PathBuf> {
    let mut places: Vec<PathBuf> = SECRET_VARIABLES
        .iter()
        .filter_map(|name| env.get(*name))
        .flat_map(|value| std::env::split_paths(value).collect::<Vec<_>>())
        .filter(|path| path.is_absolute() && path.parent().is_some())
        .collect();
    let Some(home) = absolute(env, "HOME").filter(|home| home.is_dir()) else { return places };
    // A variable that names the home folder itself would hide everything.
    places.retain(|place| !home.starts_with(place));
    places.extend(SECRET_PLACES.iter().map(|place| home.join(place)));
    for (variable, usual, names) in [
        ("XDG_CONFIG_HOME", ".config", SECRET_SETTINGS),
        ("XDG_DATA_HOME", ".local/share", SECRET_DATA),
    ] {
        let folders = [Some(home.join(usual)), absolute(env, variable)];
        for folder in folders.into_iter().flatten() {
            places.extend(names.iter().map(|name| folder.join(name)));
        }
    }
    let mixed = MIXED_FILES.iter().map(|(file, words)| (home.join(file), *words));
    places.extend(mixed.filter(|(file, words)| mentions(file, words)).map(|(file, _)| file));
    places
}

fn mentions(file: &Path, words: &[&str]) -> bool {
    if !fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.len() <= MIXED_BYTES_MAX) {
        return false;
    }
    let text = fs::read(file).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    words.iter().any(|word| text.contains(word))
}

/// Logins of agents' tools that a job has no use of: all for gates and setup commands, those of the others for an
/// agent that has a login of its own. Programs of the user's own may run any of these tools.
pub(crate) fn foreign_logins(env: &Env, agent: Option<&str>) -> Vec<PathBuf> {
    let is_known = |kind: &str| KNOWN.iter().any(|known| known.kind == kind);
    if agent.is_some_and(|kind| !is_known(kind)) {
        return Vec::new();
    }
    let others = KNOWN.iter().filter(|known| agent != Some(known.kind));
    let logins = others.flat_map(|known| known.logins);
    let place = |login: &mainstem_agents::known_agents::AgentLogin| {
        let home = absolute(env, "HOME").map(|home| home.join(login.below_home));
        let folder = absolute(env, login.variable).or(home)?;
        Some(folder.join(login.file))
    };
    logins.filter_map(place).collect()
}

/// The folder in which programs of the user's session listen.
fn runtime_folders(env: &Env) -> Vec<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let usual = PathBuf::from(format!("/run/user/{user}"));
    absolute(env, "XDG_RUNTIME_DIR").into_iter().chain([usual]).collect()
}

/// Sockets that variables name.
fn named_sockets(env: &Env) -> Vec<PathBuf> {
    let path_in = |value: &String| {
        let from = value.find('/')?;
        let value = value[from..].trim_start_matches('/');
        let end = value.find([',', ';']).unwrap_or(value.len());
        Some(Path::new("/").join(&value[..end]))
    };
    let named = SOCKET_VARIABLES.iter().filter_map(|name| env.get(*name)).filter_map(path_in);
    named.filter(|path| fs::metadata(path).is_ok_and(|meta| meta.file_type().is_socket())).collect()
}

/// Entries of temporary folders in which programs of a session listen.
fn in_temporary(env: &Env) -> Vec<PathBuf> {
    let folders = ["/tmp", "/var/tmp"].map(PathBuf::from).into_iter();
    let folders = folders.chain(["TMPDIR", "TMUX_TMPDIR"].iter().filter_map(|n| absolute(env, n)));
    let listed = folders.flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    let of_session = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        SESSION_NAMES.iter().any(|begin| name.starts_with(begin))
    };
    let found = listed.filter(of_session).map(|entry| entry.path());
    found.filter(|path| !sockets_below(path, SOCKET_DEPTH).is_empty()).collect()
}

/// What is hidden where a sandbox can hide sockets.
pub(crate) fn listening(env: &Env) -> Vec<PathBuf> {
    let daemons = DAEMONS.iter().map(PathBuf::from);
    let found = daemons.chain(runtime_folders(env)).chain(named_sockets(env));
    found.chain(in_temporary(env)).collect()
}

/// The first socket of a daemon, a key holder or a session that we, and so our agents, could talk to.
pub(crate) fn reachable(env: &Env) -> Option<PathBuf> {
    let single = DAEMONS.iter().map(PathBuf::from).chain(named_sockets(env));
    let folders = runtime_folders(env).into_iter().chain(in_temporary(env));
    let below = folders.flat_map(|folder| sockets_below(&folder, SOCKET_DEPTH));
    // Our own sockets hear nobody who runs in a job.
    let ours = mainstem_host::user_folder::user_folder_path();
    single.chain(below).find(|path| !path.starts_with(&ours) && files::can_write(path))
}

/// The sockets at or below a path; links are not followed.
fn sockets_below(path: &Path, depth: usize) -> Vec<PathBuf> {
    let Ok(meta) = fs::symlink_metadata(path) else { return Vec::new() };
    if meta.file_type().is_socket() {
        return vec![path.to_path_buf()];
    }
    if depth == 0 || !meta.is_dir() {
        return Vec::new();
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten().take(SOCKET_ENTRIES_MAX);
    entries.flat_map(|entry| sockets_below(&entry.path(), depth - 1)).collect()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn env(pairs: &[(&str, &Path)]) -> Env {
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        pairs.iter().map(|(name, path)| ((*name).to_owned(), text(path))).collect()
    }

    #[test]
    fn settings_are_hidden_only_if_they_hold_credentials() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join(".npmrc");
        let env = env(&[("HOME", home.path())]);
        fs::write(&file, "registry=https://mirror.invalid/\n").unwrap();
        assert!(!secrets(&env).contains(&file));
        fs::write(&file, "//registry.invalid/:_authToken=abc\n").unwrap();
        assert!(secrets(&env).contains(&file));
        assert!(secrets(&env).contains(&home.path().join(".config/gh")));
    }

    #[test]
    fn a_variable_that_names_the_home_folder_hides_nothing_more() {
        let home = tempfile::tempdir().unwrap();
        let env = env(&[("HOME", home.path()), ("DOCKER_CONFIG", home.path())]);
        assert!(!secrets(&env).iter().any(|place| home.path().starts_with(place)));
    }

    #[test]
    fn a_tool_sees_its_own_login_and_a_gate_sees_none() {
        let env = env(&[("HOME", Path::new("/home/me"))]);
        let claude = PathBuf::from("/home/me/.claude/.credentials.json");
        assert!(foreign_logins(&env, None).contains(&claude));
        assert!(foreign_logins(&env, Some("codex")).contains(&claude));
        assert!(!foreign_logins(&env, Some("claude")).contains(&claude));
        assert!(foreign_logins(&env, Some("command")).is_empty());
    }

    #[test]
    fn a_socket_in_an_address_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("bus");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let address = format!("unix:path={},guid=1", socket.display());
        let env = Env::from([("DBUS_SESSION_BUS_ADDRESS".to_owned(), address)]);
        assert_eq!(named_sockets(&env), std::slice::from_ref(&socket));
        let env = Env::from([("DOCKER_HOST".to_owned(), format!("unix://{}", socket.display()))]);
        assert_eq!(named_sockets(&env), [socket]);
    }
}
