//! What an agent writes is not believed, and what git cannot store is not lost: behind every sandbox that works
//! here, in worktrees and in clones.
#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use mainstem_testkit::shell_plans::shell_plan;
use mainstem_testkit::{TestRepo, TestScene, wait_until};

const BIN: &str = env!("CARGO_BIN_EXE_mainstem");
const PLACES: [(&str, &str); 4] =
    [("bwrap", "worktree"), ("bwrap", "clone"), ("landlock", "worktree"), ("landlock", "clone")];

fn scene(wall: &str, kind: &str, more: &str, tasks: &[(&str, &str, &str)]) -> Option<TestScene> {
    let config = format!("[run]\nretries = 0\n[workspace]\nkind = \"{kind}\"\n{more}");
    let scene = TestScene::new(BIN).walled(wall).config(&config).plan(&shell_plan(tasks));
    let works = wall == "off" || scene.mainstem(&["doctor"]).stdout.contains("sandbox: agents use");
    works.then_some(scene)
}

/// Every file below the workspaces' folder whose content is this.
fn kept_with(scene: &TestScene, content: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![scene.repo().place().join("repo.mainstem")];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => open.push(entry.path()),
                Ok(kind)
                    if kind.is_file()
                        && fs::read_to_string(entry.path()).is_ok_and(|text| text == content) =>
                {
                    found.push(entry.path());
                }
                _ => {}
            }
        }
    }
    found
}

fn reason(scene: &TestScene, task: &str) -> String {
    scene.task(task)["reason"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn content_planted_under_the_name_of_anothers_file_never_lands_as_its_work() {
    let plant = "h=$(printf 'allow = false\\n' | git hash-object --stdin); n=${h#??}; \
                 for o in $(git rev-parse --git-path objects) $(git rev-parse --git-common-dir)/objects; do \
                 mkdir -p $o/${h%$n}; perl -MCompress::Zlib -e 'print compress(\"blob 14\\0allow = true!\\n\")' \
                 > $o/${h%$n}/$n; done; echo a > a.txt";
    let honest = "printf 'allow = false\\n' > policy.txt; git add -A; \
                  git -c user.name=b -c user.email=b@b.b commit -qm policy";
    for (wall, kind) in PLACES {
        let tasks = [("A", plant, ""), ("B", honest, "after = [\"A\"]")];
        let Some(scene) = scene(wall, kind, "", &tasks) else { continue };
        scene.expect(0, &["run", "plan.toml"]);
        let shown = scene.repo().show("main", "policy.txt");
        assert_eq!(shown.as_deref(), Some("allow = false\n"), "{wall} {kind}");
        scene.repo().git(&["fsck", "--strict", "--no-dangling"]);
    }
}

#[test]
fn a_malformed_commit_is_a_flaw_also_without_a_sandbox() {
    let work = "echo c > c.txt; git add c.txt; t=$(git write-tree); \
                c=$(printf 'tree %s\\nparent %s\\nauthor nobody\\ncommitter nobody\\n\\nx\\n' $t $(git rev-parse HEAD) \
                | git hash-object -t commit --literally -w --stdin); git update-ref HEAD $c";
    for (wall, kind) in PLACES.into_iter().chain([("off", "worktree"), ("off", "clone")]) {
        let Some(scene) = scene(wall, kind, "", &[("T", work, "")]) else { continue };
        scene.expect(2, &["run", "plan.toml"]);
        let why = reason(&scene, "T");
        assert!(why.contains("author"), "{wall} {kind}: {why}");
        assert!(scene.repo().show("main", "c.txt").is_none());
        if wall != "off" || kind == "clone" {
            scene.repo().git(&["fsck", "--strict", "--no-dangling"]);
            scene.expect(0, &["restore", "T", "--branch", "back"]);
            assert_eq!(
                scene.repo().show("back", "c.txt").as_deref(),
                Some("c\n"),
                "the file is kept"
            );
        }
    }
}

#[test]
fn a_file_that_a_required_filter_refuses_is_kept_and_named() {
    for (wall, kind) in PLACES.into_iter().chain([("off", "worktree")]) {
        let work = "echo precious-work > model.bin; echo note > note.txt";
        let Some(scene) = scene(wall, kind, "", &[("T", work, "")]) else { continue };
        let repo = scene.repo();
        repo.git(&["config", "filter.lfs.clean", "echo 'lfs: no room' >&2; exit 2"]);
        repo.git(&["config", "filter.lfs.required", "true"]);
        repo.commit("attributes", &[(".gitattributes", "*.bin filter=lfs\n")]);
        scene.expect(2, &["run", "plan.toml"]);
        let why = reason(&scene, "T");
        let expected = "git could not store model.bin: clean filter 'lfs' failed: lfs: no room";
        assert!(why.contains(expected), "{wall} {kind}: {why}");
        let kept = kept_with(&scene, "precious-work\n");
        assert_eq!(kept.len(), 1, "{wall} {kind}: {kept:?}");
        scene.expect(0, &["cancel", "T"]);
        scene.mainstem(&["clean"]);
        let kept = kept_with(&scene, "precious-work\n");
        assert_eq!(kept.len(), 1, "clean removed it: {wall} {kind}");
        let told = scene.mainstem(&["status"]).stdout;
        let folder = kept[0].parent().map(|folder| folder.display().to_string());
        assert!(folder.is_some_and(|folder| told.contains(&folder)), "{told}");
        assert!(told.contains("Files of T that git could not store"), "{told}");
        let shown = scene.mainstem(&["show", "T"]).stdout;
        assert!(shown.contains("files git could not store: /"), "{shown}");
    }
}

#[test]
fn a_file_of_a_terabyte_is_a_flaw_at_once() {
    let work = "truncate -s 1T big.img; echo note > note.txt";
    let more = "[sandbox]\nfile_size = \"2T\"\n";
    for (wall, kind) in PLACES {
        let Some(scene) = scene(wall, kind, more, &[("T", work, "")]) else { continue };
        let began = Instant::now();
        scene.expect(2, &["run", "plan.toml"]);
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
        let why = reason(&scene, "T");
        assert!(
            why.contains("big.img") && why.contains("limits.file_size"),
            "{wall} {kind}: {why}"
        );
        assert_eq!(scene.task("T")["attempt"], 1);
    }
}

#[test]
fn credentials_in_gits_settings_reach_no_agent_no_gate_and_no_log() {
    let look = "git config -l; git remote -v; env; cat $HOME/.gitconfig; cat $(git rev-parse --git-common-dir)/config; \
                git log --oneline -1 || echo NO-GIT; echo x > $MAINSTEM_TASK.txt; git add -A; git commit -qm w || echo NO-COMMIT";
    let gates = "[gates]\nverify = [\"git config -l; git log --oneline -1 && cat $(git rev-parse --git-common-dir)/config; true\"]\n";
    for (wall, kind) in PLACES {
        let Some(scene) = scene(wall, kind, gates, &[("T", look, "")]) else { continue };
        let repo = scene.repo();
        repo.git(&[
            "remote",
            "add",
            "origin",
            "https://x:s3cr3t-t0ken-value@example.invalid/a.git",
        ]);
        repo.git(&["config", "http.extraheader", "AUTHORIZATION: basic aGVhZGVyLXNlY3JldA=="]);
        repo.git(&["config", "commit.gpgSign", "true"]);
        let home = "[user]\n\tname = Test\n\temail = test@example.invalid\n\
                    [url \"https://gl0bal-t0ken@example.invalid/\"]\n\tinsteadOf = https://example.invalid/\n";
        fs::write(repo.home().join(".gitconfig"), home).expect("a file at home");
        scene.expect(0, &["run", "plan.toml"]);
        let log = scene.mainstem(&["logs", "T"]).stdout;
        let gate = fs::read_dir(repo.git_dir().join("mainstem/runs")).expect("there was a run");
        let all: String = gate.flatten().map(|run| contents(&run.path())).collect();
        for secret in ["s3cr3t-t0ken-value", "aGVhZGVyLXNlY3JldA", "gl0bal-t0ken"] {
            assert!(
                !log.contains(secret) && !all.contains(secret),
                "{wall} {kind} {secret}: {log}"
            );
        }
        assert!(
            log.contains("remote.origin.url=https://example.invalid/a.git"),
            "{wall} {kind}: {log}"
        );
        assert!(!log.contains("NO-GIT") && !log.contains("NO-COMMIT"), "{wall} {kind}: {log}");
        let author = repo.git(&["log", "--all", "--format=%an %s"]);
        assert!(author.contains("Test w"), "{wall} {kind}: {author}");
    }
}

/// All text below a folder.
fn contents(folder: &Path) -> String {
    let mut all = String::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            all.push_str(&contents(&path));
        } else if path.is_file() {
            all.push_str(&String::from_utf8_lossy(&fs::read(&path).unwrap_or_default()));
        }
    }
    all
}

#[test]
fn a_known_value_does_not_land_in_a_name_a_message_an_author_or_wide_letters() {
    const VALUE: &str = "hunter2-hunter2-hunter2";
    let commit = "git -c user.name=a -c user.email=a@b.c";
    let tasks = [
        ("NAME", format!("echo x > {VALUE}.txt")),
        ("FOLDER", format!("mkdir -p d/{VALUE}; echo x > d/{VALUE}/x.txt")),
        ("MESSAGE", format!("echo x > m.txt; git add -A; {commit} commit -qm 'uses {VALUE}'")),
        (
            "AUTHOR",
            format!(
                "echo x > a.txt; git add -A; git -c user.name={VALUE} -c user.email=a@b.c commit -qm a"
            ),
        ),
        ("WIDE", format!("printf {VALUE} | iconv -t UTF-16LE > w.txt")),
        ("TOKEN", "echo x > ghp_0123456789abcdefghijABCDEFGHIJ012345".to_owned()),
        (
            "TOKEN-MESSAGE",
            format!(
                "echo x > t.txt; git add -A; {commit} commit -qm ghp_0123456789abcdefghijABCDEFGHIJ012345"
            ),
        ),
        ("FINE", "echo fine > fine.txt".to_owned()),
    ];
    let tasks: Vec<(&str, &str, &str)> =
        tasks.iter().map(|(id, run)| (*id, run.as_str(), "")).collect();
    let more = "[agents.mine]\nkind = \"command\"\ncommand = [\"true\"]\nsecrets = [\"MINE\"]\n";
    let Some(scene) = scene("off", "worktree", more, &tasks) else { return };
    let scene = scene.env("MINE", VALUE);
    scene.expect(2, &["run", "plan.toml"]);
    for (id, _, _) in &tasks {
        let phase = scene.phase(id);
        assert_eq!(phase == "landed", *id == "FINE", "{id}: {phase} {}", reason(&scene, id));
    }
    let told = scene.mainstem(&["status"]).stdout;
    assert!(!told.contains(VALUE), "{told}");
}

#[test]
fn a_link_that_leads_outside_through_another_does_not_land() {
    let work = "ln -s . d; ln -s d/../home/.gitconfig l; echo x > x.txt";
    let Some(scene) = scene("off", "worktree", "", &[("T", work, "")]) else { return };
    scene.expect(2, &["run", "plan.toml"]);
    let why = reason(&scene, "T");
    assert!(why.contains("l: the symbolic link points outside the repository"), "{why}");
}

/// Says whether each of these sockets hears us.
fn reach(sockets: &[&Path]) -> String {
    let program =
        "print IO::Socket::UNIX->new(Peer => $_) ? qq(REACHED $_\\n) : qq(BLOCKED\\n) for @ARGV";
    let names: Vec<String> = sockets.iter().map(|path| path.display().to_string()).collect();
    format!("perl -MIO::Socket::UNIX -e '{program}' {}", names.join(" "))
}

#[test]
fn no_program_of_the_users_session_hears_an_agent_or_a_gate() {
    for (wall, kind) in PLACES {
        let repo = TestRepo::new();
        let outside = repo.root().join("session");
        let places = ["tmux-1/default", "bus", "run/gnupg/S.gpg-agent", "run/bus"];
        let sockets = places.map(|place| outside.join(place));
        let listeners: Vec<UnixListener> = sockets
            .iter()
            .map(|socket| {
                fs::create_dir_all(socket.parent().expect("it has one")).expect("a folder");
                UnixListener::bind(socket).expect("a socket in a temporary folder")
            })
            .collect();
        let look = reach(&sockets.each_ref().map(PathBuf::as_path));
        let config = format!(
            "[run]\nretries = 0\n[workspace]\nkind = \"{kind}\"\n[sandbox]\ntmp = \"shared\"\n\
             [gates]\nneed_tests = false\nverify = ['''{look} | tee seen.txt; ! grep REACHED seen.txt''']\n"
        );
        let work = format!("{look}; echo x > x.txt");
        let bus = format!("unix:path={},guid=1", sockets[1].display());
        let scene = TestScene::in_repo(repo, BIN)
            .walled(wall)
            .config(&config)
            .plan(&shell_plan(&[("T", &work, "")]))
            .env("TMUX_TMPDIR", &outside)
            .env("DBUS_SESSION_BUS_ADDRESS", bus)
            .env("XDG_RUNTIME_DIR", outside.join("run"));
        if !scene.mainstem(&["doctor"]).stdout.contains("agents run behind") {
            continue;
        }
        let ran = scene.expect(0, &["run", "plan.toml"]);
        let log = scene.mainstem(&["logs", "T"]).stdout;
        assert!(!log.contains("REACHED"), "{wall} {kind}: {log}");
        assert_eq!(
            log.matches("BLOCKED").count(),
            places.len(),
            "{wall} {kind}: {log} {}",
            ran.stderr
        );
        drop(listeners);
    }
}

#[test]
fn a_hidden_file_that_is_replaced_while_an_agent_works_stays_hidden() {
    let work = |files: &str| {
        format!(
            "touch ready; until [ -e go ]; do sleep 0.05; done; rm -f ready go; \
             for f in {files}; do grep -q t0ken $f 2>/dev/null && echo SEEN $f; done; echo LOOKED; echo x > x.txt"
        )
    };
    for (wall, kind) in PLACES {
        let Some(scene) = scene(wall, kind, "", &[]) else { continue };
        let repo = scene.repo();
        let (netrc, config) = (repo.home().join(".netrc"), repo.git_dir().join("config"));
        let files = format!("{} {}", netrc.display(), config.display());
        let scene = scene.plan(&shell_plan(&[("T", &work(&files), "")]));
        let repo = scene.repo();
        fs::write(&netrc, "password old-t0ken\n").expect("a file at home");
        repo.git(&["remote", "add", "origin", "https://x:s3cr3t-t0ken@example.invalid/a.git"]);
        let running = scene.spawn(&["run", "plan.toml"]);
        let workspace = repo.place().join("repo.mainstem/T");
        let ready = workspace.join("ready");
        wait_until(Duration::from_secs(90), "the agent works", || ready.exists());
        repo.git(&["config", "some.thing", "new"]);
        let new = repo.home().join("new");
        fs::write(&new, "password new-t0ken\n").expect("a file at home");
        fs::rename(&new, &netrc).expect("it takes its place");
        fs::write(workspace.join("go"), "").expect("a file in the workspace");
        running.wait().expect_code(0);
        let log = scene.mainstem(&["logs", "T"]).stdout;
        assert!(log.contains("LOOKED") && !log.contains("SEEN"), "{wall} {kind}: {log}");
    }
}

/// Makes many files and as many links to a file outside, and swaps their folders for some seconds while snapshots
/// are taken. Its argument is the file outside.
const SWAP: &str = r#"
my ($key) = @ARGV; my $call = `uname -m` =~ /x86_64/ ? 316 : 276;
mkdir 'd'; mkdir 'e';
for my $i (0 .. 999) {
    open my $file, '>', "d/f$i" or die; print $file substr(sprintf('%06d', $i) x 100, 0, 400); close $file;
    symlink $key, "e/f$i" or die;
}
my ($one, $two, $end) = ('d', 'e', time + 8);
while (time < $end) {
    for (1 .. 5000) { syscall($call, -100, $one, -100, $two, 2) }
    for my $i (0 .. 999) { for my $f ("d/f$i", "e/f$i") { utime undef, undef, $f unless -l $f } }
}
print "SWAPPED\n"; system 'rm -rf d e';
"#;

#[test]
fn no_link_that_is_swapped_in_while_a_snapshot_is_taken_brings_in_a_file_from_outside() {
    let key = format!("{}-k3y-material", "k".repeat(387));
    assert_eq!(key.len(), 400, "as long as the files, so that it would fit");
    for (wall, kind) in [("bwrap", "worktree"), ("landlock", "clone")] {
        let Some(scene) = scene(wall, kind, "[snapshots]\nevery = \"1s\"\n", &[]) else { continue };
        let file = scene.repo().home().join(".ssh/id");
        fs::create_dir_all(file.parent().expect("it has one")).expect("a folder at home");
        fs::write(&file, &key).expect("a file at home");
        let work = format!("perl swap.pl {}; echo x > x.txt", file.display());
        let scene = scene.plan(&shell_plan(&[("T", &work, "")]));
        let repo = scene.repo();
        repo.commit("by hand", &[("swap.pl", SWAP)]);
        scene.expect(0, &["run", "plan.toml"]);
        assert!(scene.mainstem(&["logs", "T"]).stdout.contains("SWAPPED"), "{wall} {kind}");
        let snapshots = repo.git(&["for-each-ref", "refs/mainstem/snapshots"]);
        assert!(!snapshots.is_empty(), "{wall} {kind}: none was taken");
        let stored = repo.git(&["hash-object", &file.display().to_string()]);
        let found = repo.try_git(&["cat-file", "-e", &stored]);
        assert_ne!(found.code, 0, "{wall} {kind}: the key is in the repository");
    }
}

#[test]
fn links_among_the_leases_of_ports_lead_the_engine_nowhere() {
    for (wall, kind) in PLACES {
        let Some(scene) = scene(wall, kind, "", &[]) else { continue };
        let prize = scene.outside("prize");
        fs::create_dir(&prize).expect("a folder in a temporary folder");
        let plant = format!(
            "for p in /tmp/mainstem-$(id -u) $HOME/.local/state/mainstem; do rm -rf $p/ports; mkdir -p $p; \
             ln -s {prize} $p/ports; ln -s {prize}/x $p/ports/20000; done 2>/dev/null; true",
            prize = prize.display()
        );
        let config = format!(
            "[run]\nretries = 0\n[workspace]\nkind = \"{kind}\"\n[sandbox]\ntmp = \"shared\"\n\
             hide = [\"{}\"]\n[gates]\nneed_tests = false\nverify = ['''{plant}''']\n",
            prize.display()
        );
        let scene = scene.config(&config).plan(&shell_plan(&[
            ("A", &format!("echo a > a.txt; {plant}"), ""),
            ("B", "echo $MAINSTEM_PORT > b.txt", "needs = [\"A\"]"),
        ]));
        scene.expect(0, &["run", "plan.toml"]);
        let made: Vec<_> = fs::read_dir(&prize).expect("it is there").collect();
        assert!(made.is_empty(), "{wall} {kind}: the engine wrote through a link: {made:?}");
        let left =
            PathBuf::from(format!("/tmp/mainstem-{}/ports", rustix::process::geteuid().as_raw()));
        if left.is_symlink() {
            fs::remove_file(left).expect("our own link");
        }
    }
}

#[test]
fn nobody_listens_in_place_of_an_engine_whose_socket_needs_a_short_path() {
    let look = "for p in /tmp/mainstem-$(id -u) $HOME/.local/state/mainstem; do find $p -name '*.sock' \
                -not -path '*/mcp.sock' -exec rm -f {} + ; done 2>/dev/null; touch ready; \
                until [ -e go ]; do sleep 0.05; done; rm -f ready go; echo a > a.txt";
    for (wall, kind) in PLACES {
        let config = format!(
            "[run]\nretries = 0\n[workspace]\nkind = \"{kind}\"\n[sandbox]\ntmp = \"shared\"\n"
        );
        let name = "x".repeat(120);
        let scene = TestScene::in_repo(TestRepo::named(&name), BIN)
            .walled(wall)
            .config(&config)
            .plan(&shell_plan(&[("A", look, ""), ("B", "echo b > b.txt", "needs = [\"A\"]")]));
        if !scene.mainstem(&["doctor"]).stdout.contains("agents run behind") {
            continue;
        }
        let running = scene.spawn(&["run", "plan.toml"]);
        let workspace = scene.repo().place().join(format!("{name}.mainstem/A"));
        let ready = workspace.join("ready");
        wait_until(Duration::from_secs(90), "the agent works", || ready.exists());
        let said = scene.expect(0, &["cancel", "B"]);
        assert!(said.stderr.contains("B is cancelled") || said.stdout.contains("B is cancelled"));
        fs::write(workspace.join("go"), "").expect("a file in the workspace");
        running.wait().expect_code(2);
        scene.assert_phases(&[("A", "landed"), ("B", "cancelled")]);
    }
}

#[test]
fn a_name_that_git_does_not_accept_is_a_flaw_and_the_file_is_kept() {
    let work = "mkdir git~1; echo precious-work > git~1/config; echo note > note.txt";
    for (wall, kind) in PLACES.into_iter().chain([("off", "worktree")]) {
        let Some(scene) = scene(wall, kind, "", &[("T", work, "")]) else { continue };
        scene.expect(2, &["run", "plan.toml"]);
        let why = reason(&scene, "T");
        assert!(why.contains("git could not store git~1/config"), "{wall} {kind}: {why}");
        assert_eq!(kept_with(&scene, "precious-work\n").len(), 1, "{wall} {kind}");
    }
}

/// Whether the tests run as root, who may read and write everything.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Nobody's id, wherever there is one.
const NOBODY: &str = "65534";

/// A script that runs as an ordinary user in a folder of its own: as ourselves, or as nobody if we are root.
#[expect(clippy::disallowed_methods, reason = "another user's shell")]
fn as_ordinary_user(folder: &Path, script: &str) -> (i32, String) {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).expect("our own folder");
    // Nobody may look into the folder in which we were built.
    let binary = folder.join("mainstem");
    fs::copy(BIN, &binary).expect("there is room for it");
    let shell = ["/bin/bash", "-c", script];
    let mut command = if is_root() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--"]).args(shell);
        command
    } else {
        let mut command = Command::new(shell[0]);
        command.args(&shell[1..]);
        command
    };
    let path = std::env::var("PATH").unwrap_or_default();
    let out = command
        .current_dir(folder)
        .env_clear()
        .env("PATH", format!("{path}:/usr/bin:/bin"))
        .env("HOME", folder)
        .env("MAINSTEM", &binary)
        .output()
        .expect("setpriv and bash are there");
    let told = [out.stdout, out.stderr].concat();
    (out.status.code().unwrap_or(-1), String::from_utf8_lossy(&told).into_owned())
}

/// Makes a repository in `repo` with these settings and this one task.
const PRELUDE: &str = "set -e\n\
    git config --global user.email a@b.c; git config --global user.name t; git config --global init.defaultBranch main\n\
    git init -q repo; cd repo; echo hello > README.md\n\
    printf '[run]\\nretries = 0\\n[land]\\nbranch = \"main\"\\n' > mainstem.toml; git add -A; git commit -qm init; set +e\n\
    plan() { printf 'version = 1\\n[[task]]\\nid = \"A\"\\nrun = \"%s\"\\n' \"$1\" > ../plan.toml; }\n";

#[test]
fn work_outlives_an_object_store_that_cannot_be_written() {
    let dir = tempfile::Builder::new().prefix("ms").tempdir_in("/tmp").expect("a temporary folder");
    let script = format!(
        "{PRELUDE}
        plan 'echo precious-work > a.txt; touch ready; until [ -e go ]; do sleep 0.05; done; rm -f ready go'
        $MAINSTEM run ../plan.toml > ../said 2>&1 & engine=$!
        until [ -e ../repo.mainstem/A/ready ] || ! kill -0 $engine; do sleep 0.05; done
        find .git/objects -type d -exec chmod a-w {{}} +; touch ../repo.mainstem/A/go
        wait $engine; echo code $?; find .git/objects -type d -exec chmod u+w {{}} +
        cat ../said; $MAINSTEM show A; $MAINSTEM status
        grep -rl precious-work ../repo.mainstem && echo KEPT"
    );
    let (_, told) = as_ordinary_user(dir.path(), &script);
    assert!(told.contains("code 2") && told.contains("KEPT"), "{told}");
    assert!(told.contains("git could not store a.txt: ") && told.contains("permission"), "{told}");
    assert!(!told.contains("no edit"), "{told}");
}

#[test]
fn a_file_that_may_not_be_read_is_kept() {
    let dir = tempfile::Builder::new().prefix("ms").tempdir_in("/tmp").expect("a temporary folder");
    let script = format!(
        "{PRELUDE}
        plan 'echo precious-work > a.txt; echo b > b.txt; chmod 000 a.txt'
        $MAINSTEM run ../plan.toml; echo code $?; $MAINSTEM status
        find ../repo.mainstem -name a.txt -exec chmod 600 {{}} +
        grep -rl precious-work ../repo.mainstem && echo KEPT"
    );
    let (_, told) = as_ordinary_user(dir.path(), &script);
    assert!(told.contains("code 2") && told.contains("KEPT"), "{told}");
    assert!(told.contains("git could not store a.txt: "), "{told}");
}
