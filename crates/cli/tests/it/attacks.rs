//! Agents that attack: every wall that works here, with worktrees and with clones. Nothing outside their
//! workspace changes, no secret is seen, nothing of theirs runs outside, and honest work lands beside.
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::symlink;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::process::Child;
use std::time::Duration;

use mainstem_testkit::TestScene;

mod cases;

use cases::{CASES, Case, PRELUDE};

const BIN: &str = env!("CARGO_BIN_EXE_mainstem");
const SECRET: &str = "keep-this-to-yourself";
/// Longer than the machine is ever that slow.
const PATIENCE: Duration = Duration::from_secs(600);

/// Where the attacks take place, with everything they are after.
struct Ground {
    scene: TestScene,
    victim: Child,
    _sockets: [UnixListener; 2],
    before: BTreeMap<String, Vec<u8>>,
    abstract_name: String,
}

/// Whether this wall works here. On a machine for tests both do; elsewhere it is said and left out.
fn works(kind: &str) -> bool {
    let scene = TestScene::new(BIN).walled(kind);
    let report = scene.mainstem(&["doctor"]).stdout;
    let works = report.contains("sandbox: agents use");
    // Where it does not, the start is refused, and that is the other way to be safe.
    if !works {
        let scene = scene.plan("version = 1\n[[task]]\nid = \"T\"\nrun = \"true\"\n");
        scene.expect(1, &["run", "plan.toml"]);
    }
    works
}

fn ground(wall: &str, workspace: &str) -> Ground {
    let scene = TestScene::new(BIN).walled(wall);
    // A scene's own folder may be one that everybody may write to, such as /dev/shm.
    let canary = scene.outside("canary");
    let config = format!(
        "[run]\nretries = 0\ntimeout = \"60s\"\ngrace = \"1s\"\n[land]\nbranch = \"main\"\n\
         [sandbox]\ntmp = \"private\"\nfile_size = \"30M\"\nhide = [\"{}\"]\n\
         [workspace]\nkind = \"{workspace}\"\n",
        canary.display()
    );
    let scene = scene.config(&config);
    let (repo, home) = (scene.repo(), scene.repo().home());
    for place in [
        ".ssh/id_ed25519",
        ".aws/credentials",
        ".gnupg/secring",
        ".config/gh/hosts.yml",
        ".netrc",
        ".git-credentials",
        ".docker/config.json",
        ".kube/config",
        ".npmrc",
        ".pgpass",
        ".vault-token",
        ".Xauthority",
        ".config/rclone/rclone.conf",
        ".local/share/fish/fish_history",
        "config/mainstem/config.toml",
        "dotfiles/pypirc",
    ] {
        let file = home.join(place);
        fs::create_dir_all(file.parent().expect("it has one")).expect("a folder at home");
        // A comment, or a token, in whichever of these files.
        fs::write(file, format!("#_authToken={SECRET}")).expect("a file at home");
    }
    symlink("dotfiles/pypirc", home.join(".pypirc")).expect("a link at home");
    fs::write(home.join(".bashrc"), "# mine\n").expect("a file at home");
    fs::create_dir(&canary).expect("a folder in a temporary folder");
    repo.git(&["config", "user.name", "Agent"]);
    repo.git(&["config", "user.email", "agent@example.invalid"]);
    let address = format!("https://x:{SECRET}@example.invalid/a.git");
    repo.git(&["remote", "add", "origin", &address]);
    repo.git(&["config", "http.extraheader", &format!("AUTHORIZATION: basic {SECRET}")]);
    repo.git(&["gc", "-q"]);
    let socket = scene.outside("agent.sock");
    let abstract_name = format!("mainstem-attack-{wall}-{workspace}-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&abstract_name).expect("a short name");
    let sockets = [
        UnixListener::bind(&socket).expect("a socket in a temporary folder"),
        UnixListener::bind_addr(&address).expect("an abstract socket"),
    ];
    let mut sleep = scene.repo().command("sleep");
    let victim = sleep.arg("900").env("OWN", SECRET).spawn().expect("sleep is there");
    let scene = scene
        .env("SSH_AUTH_SOCK", &socket)
        .env("ENGINE_SETTING", "engine-only-value")
        .env("GIT_EXTERNAL_DIFF", "engine-only-value")
        .env("NODE_OPTIONS", "--engine-only-value")
        .env("BASH_ENV", "/engine-only-value");
    let before = guarded(&scene);
    Ground { scene, victim, _sockets: sockets, before, abstract_name }
}

/// What nobody may change: home, the repository's settings, hooks and lent objects.
fn guarded(scene: &TestScene) -> BTreeMap<String, Vec<u8>> {
    let git = scene.repo().git_dir();
    let mut found = BTreeMap::new();
    for place in
        [scene.repo().home(), git.join("hooks"), git.join("info"), git.join("objects/info")]
    {
        collect(&place, &mut found);
    }
    for file in ["config", "HEAD", "packed-refs"] {
        found.insert(file.to_owned(), fs::read(git.join(file)).unwrap_or_default());
    }
    found
}

fn collect(folder: &Path, found: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, found);
        } else {
            found.insert(path.display().to_string(), fs::read(&path).unwrap_or_default());
        }
    }
}

fn plan(ground: &Ground, ids: &[&str]) -> String {
    let scene = &ground.scene;
    let numbers = match std::env::consts::ARCH {
        "x86_64" => ["101", "321", "250", "323"],
        _ => ["117", "280", "219", "282"],
    };
    let words = [
        ("@REPO@", scene.repo().path().display().to_string()),
        ("@HOME@", scene.repo().home().display().to_string()),
        ("@CANARY@", scene.outside("canary").display().to_string()),
        ("@EXE@", scene.binary().display().to_string()),
        ("@VICTIM@", ground.victim.id().to_string()),
        ("@ENGINE@", std::process::id().to_string()),
        ("@SOCK@", scene.outside("agent.sock").display().to_string()),
        ("@ABSTRACT@", ground.abstract_name.clone()),
        ("@PTRACE@", numbers[0].to_owned()),
        ("@BPF@", numbers[1].to_owned()),
        ("@KEYCTL@", numbers[2].to_owned()),
        ("@UFFD@", numbers[3].to_owned()),
    ];
    let mut plan = "version = 1\n".to_owned();
    for (id, cases) in grouped(ids) {
        let mut script = PRELUDE.to_owned();
        for case in cases {
            let _ = write!(script, "\necho '{MARK}{}'\n(\n{}\n)\n", case.id, case.script);
        }
        for (word, value) in &words {
            script = script.replace(word, value);
        }
        let _ = writeln!(plan, "\n[[task]]\nid = \"{id}\"\nrun = '''{script}\nexit 0'''");
    }
    let _ = writeln!(
        plan,
        "\n[[task]]\nid = \"GOOD\"\nrun = 'echo fine > fine.txt; git add -A; git commit -qm fine'\n"
    );
    plan
}

/// Before what an attack says.
const MARK: &str = "attack: ";
/// Attacks that tell how they went and leave nothing behind share an agent: starting one takes longer
/// than they do.
const AT_ONCE: usize = 8;

/// The tasks, and the attacks of each.
fn grouped(ids: &[&str]) -> Vec<(String, Vec<&'static Case>)> {
    let wanted = CASES.iter().filter(|case| ids.is_empty() || ids.contains(&case.id));
    let (told, seen): (Vec<_>, Vec<_>) = wanted.partition(|case| case.tells);
    let groups = told.chunks(AT_ONCE).enumerate();
    let groups = groups.map(|(n, cases)| (format!("told-{n}"), cases.to_vec()));
    groups.chain(seen.into_iter().map(|case| (case.id.to_owned(), vec![case]))).collect()
}

fn attack(wall: &str, workspace: &str) {
    if !works(wall) {
        return;
    }
    let mut ground = ground(wall, workspace);
    let sibling = ground.scene.repo().place().join("repo.mainstem/victim");
    assert!(ground.scene.repo().path().ends_with("repo"), "the sibling is beside the workspaces");
    fs::create_dir_all(&sibling).expect("a folder in a temporary folder");
    fs::write(sibling.join("secret.txt"), SECRET).expect("a file in a temporary folder");
    let file = ground.scene.outside("plan.toml");
    let one = std::env::var("ATTACK").unwrap_or_default();
    fs::write(&file, plan(&ground, &one.split_terminator(',').collect::<Vec<_>>()))
        .expect("a file in a temporary folder");
    let scene = &ground.scene;
    let run = scene.spawn(&["run", &file.display().to_string(), "-j", "4"]).wait_for(PATIENCE);
    assert!([0, 2].contains(&run.code), "{}\n{}", run.stdout, run.stderr);
    let ids: Vec<&str> = one.split_terminator(',').collect();
    let mut escaped = Vec::new();
    for (id, cases) in grouped(&ids) {
        let log = scene.mainstem(&["logs", &id]).stdout;
        if log.contains("ESCAPED") || log.contains(SECRET) || log.contains('\u{1b}') {
            escaped.push(format!("{id}: {log}"));
        }
        for case in cases.iter().filter(|case| case.tells) {
            let said = log.split(MARK).find_map(|said| said.strip_prefix(case.id));
            if !said.is_some_and(|said| said.starts_with('\n') && said.contains("BLOCKED")) {
                escaped.push(format!("{} did not tell: {log}", case.id));
            }
        }
    }
    assert!(escaped.is_empty(), "behind {wall}, {workspace}:\n{}", escaped.join("\n"));
    assert!(ground.victim.try_wait().expect("our own child").is_none(), "the victim lives");
    ground.victim.kill().expect("our own child");
    ground.victim.wait().expect("our own child");
    fs::remove_dir_all(sibling).expect("it is as it was");
    assert_untouched(&ground);
}

/// What can only be seen from outside.
fn assert_untouched(ground: &Ground) {
    let scene = &ground.scene;
    let repo = scene.repo();
    let canary: Vec<_> = fs::read_dir(scene.outside("canary")).expect("it is there").collect();
    assert!(canary.is_empty(), "something planted was run outside: {canary:?}");
    let after = guarded(scene);
    for (place, bytes) in &ground.before {
        assert_eq!(after.get(place), Some(bytes), "{place} was changed");
    }
    for place in after.keys().filter(|place| !ground.before.contains_key(*place)) {
        // Git's own summary of packs is nobody's attack, nor is the lock of the engine's port leases.
        let ours = place.ends_with("/.local/state/mainstem/ports/lock");
        let gits = place.ends_with("packs") || place.contains("commit-graph");
        assert!(ours || gits, "{place} was added");
    }
    scene.assert_phases(&[("GOOD", "landed")]);
    let landings = scene.landings("main");
    let mut tasks: Vec<&str> = landings.iter().map(|landing| landing.task.as_str()).collect();
    tasks.sort_unstable();
    let count = tasks.len();
    tasks.dedup();
    assert_eq!(tasks.len(), count, "a task landed twice: {landings:?}");
    for refname in repo.git(&["for-each-ref", "--format=%(refname)"]).lines() {
        let ours = refname == "refs/heads/main"
            || refname.starts_with("refs/mainstem/")
            || refname.starts_with("refs/heads/mainstem/");
        assert!(ours, "{refname} was planted");
    }
    for id in [
        "link-landed",
        "link-chain",
        "link-zero",
        "large-file",
        "name-case",
        "name-hfs",
        "name-short",
        "commit-malformed",
    ] {
        if scene.status()["tasks"].to_string().contains(&format!("\"{id}\"")) {
            assert_ne!(scene.phase(id), "landed", "{id}");
        }
    }
    let tree = repo.git(&["ls-tree", "-r", "main"]);
    assert!(!tree.contains("../") && !tree.to_lowercase().contains(".git/"), "{tree}");
    assert!(!tree.contains("git~1") && !tree.contains("it/config"), "{tree}");
    assert!(!tree.contains("160000 ") || tree.contains(".gitmodules"), "{tree}");
    assert_eq!(repo.show("main", "fine.txt").as_deref(), Some("fine\n"));
    assert!(!repo.path().join("evil.txt").exists() && !repo.place().join("evil.txt").exists());
    for place in ["/etc/mainstem-evil", "/usr/mainstem-evil"] {
        assert!(!Path::new(place).exists(), "{place}");
    }
    let told = scene.mainstem(&["status"]).stdout + &scene.mainstem(&["history"]).stdout;
    assert!(!told.contains('\u{1b}') && !told.contains(SECRET), "{told}");
    // A snapshot keeps files as they were left, a .gitmodules with a command in it too. Objects are sound.
    let fsck = repo.try_git(&["fsck", "--no-dangling"]);
    let faults = format!("{}{}", fsck.stdout, fsck.stderr);
    let as_left = [": gitmodules", ": hasDotgit", ": gitignoreSymlink"];
    let is_left = |line: &str| as_left.iter().any(|word| line.contains(word));
    let bad = faults.lines().find(|line| !line.is_empty() && !is_left(line));
    assert_eq!(bad, None, "{faults}");
    // What landed is what a server that checks every object takes.
    let hub = scene.outside("hub.git").display().to_string();
    repo.git(&["init", "-q", "--bare", &hub]);
    repo.git(&["--git-dir", &hub, "config", "receive.fsckObjects", "true"]);
    repo.git(&["push", "-q", &hub, "main:main"]);
    // Those that got in each other's way wait for a person, who wants none of them.
    for task in scene.status()["tasks"].as_array().into_iter().flatten() {
        if task["phase"] == "conflicted" {
            scene.expect(0, &["skip", task["id"].as_str().expect("it has one")]);
        }
    }
    scene.expect(0, &["clean"]);
    // Landlock cannot keep an agent from putting a repository of its own where ours was. That one is
    // none of ours to delete: it is kept aside, and goes by hand.
    let aside = repo.place().join("repo.mainstem/.trash");
    for kept in fs::read_dir(&aside).into_iter().flatten().flatten() {
        let name = kept.file_name().to_string_lossy().into_owned();
        // And so does a file that git is not given.
        let unstored =
            name.contains("unstored-large-file-") || name.contains("unstored-name-short-");
        assert!(unstored || name.ends_with("dot-git-folder"), "{kept:?}");
        fs::remove_dir_all(kept.path()).expect("a folder in a temporary folder");
    }
    scene.assert_no_leftovers();
}

/// The page lists every attack; `MAINSTEM_BLESS=1` writes the list anew.
#[test]
fn the_page_on_security_lists_every_attack() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/security.md");
    let text = fs::read_to_string(&page).expect("the page is there");
    let (begin, end) = ("<!-- attacks: begin -->\n", "<!-- attacks: end -->");
    let from = text.find(begin).expect("the list begins") + begin.len();
    let to = text.find(end).expect("the list ends");
    let mut list = String::from("| attack | what is tried |\n|---|---|\n");
    for case in CASES {
        let _ = writeln!(list, "| `{}` | {} |", case.id, case.what.replace('|', "\\|"));
    }
    if std::env::var_os("MAINSTEM_BLESS").is_some() {
        let new = format!("{}{list}{}", &text[..from], &text[to..]);
        fs::write(&page, new).expect("the page can be written");
        return;
    }
    assert!(CASES.len() >= 40);
    assert_eq!(&text[from..to], list, "run this test with MAINSTEM_BLESS=1");
}

#[test]
fn no_attack_succeeds_behind_bubblewrap_in_a_worktree() {
    attack("bwrap", "worktree");
}

#[test]
fn no_attack_succeeds_behind_bubblewrap_in_a_clone() {
    attack("bwrap", "clone");
}

#[test]
fn no_attack_succeeds_behind_landlock_in_a_worktree() {
    attack("landlock", "worktree");
}

#[test]
fn no_attack_succeeds_behind_landlock_in_a_clone() {
    attack("landlock", "clone");
}

#[test]
fn a_network_that_is_closed_cannot_be_reached() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port on loopback");
    let port = listener.local_addr().expect("it is bound").port();
    let reach = format!(
        "if perl -MIO::Socket::INET -e 'exit(IO::Socket::INET->new(PeerAddr => \"127.0.0.1:{port}\", \
         Timeout => 5) ? 0 : 1)'; then echo REACHED; else echo BLOCKED; fi; echo x > x.txt"
    );
    let plan = format!("version = 1\n[[task]]\nid = \"T\"\nrun = '''{reach}'''\n");
    let scene = |wall: &str, network: &str| {
        let config = format!("[run]\nretries = 0\n[sandbox]\nnetwork = \"{network}\"\n");
        TestScene::new(BIN).walled(wall).config(&config).plan(&plan)
    };
    for wall in ["bwrap", "landlock"].into_iter().filter(|wall| works(wall)) {
        for (network, word) in [("open", "REACHED"), ("none", "BLOCKED"), ("loopback", "BLOCKED")] {
            let scene = scene(wall, network);
            if (wall, network) == ("landlock", "loopback") {
                let said = scene.expect(1, &["run", "plan.toml"]);
                assert!(said.stderr.contains("needs bubblewrap"), "{}", said.stderr);
                continue;
            }
            scene.expect(0, &["run", "plan.toml"]);
            let log = scene.mainstem(&["logs", "T"]).stdout;
            assert!(log.contains(word), "{wall}, {network}: {log}");
        }
    }
}
