use std::fs;

use mainstem_core::id::Oid;

use super::super::{
    CheckoutReadiness, CheckoutUpdate, GitError, GitMergeOutcome, GitReplayOutcome, HygieneFlaw,
    RefUpdateOutcome,
};
use super::{Scene, git, plain, who, write};

fn clean(merge: GitMergeOutcome) -> Oid {
    match merge {
        GitMergeOutcome::Clean { tree } => tree,
        GitMergeOutcome::Conflict { files, text, .. } => panic!("conflict in {files:?}: {text}"),
    }
}

#[test]
fn a_conflict_is_told_from_a_clean_merge_and_from_an_error() {
    let scene = Scene::new();
    let base = scene.tip("main");
    let left = scene.change(&base, &[("a.txt", Some("ONE\ntwo\nthree\n")), ("ü \n", Some("l"))]);
    let right = scene.change(&base, &[("dir/b.txt", Some("B\n"))]);
    let clash = scene.change(&base, &[("a.txt", Some("eins\ntwo\nthree\n")), ("ü \n", Some("r"))]);

    let tree = clean(scene.repo.merge(&left, &right).unwrap());
    assert_eq!(scene.show(&tree, "a.txt"), "ONE\ntwo\nthree\n");
    assert_eq!(scene.show(&tree, "dir/b.txt"), "B\n");
    match scene.repo.merge(&left, &clash).unwrap() {
        GitMergeOutcome::Conflict { files, text, .. } => {
            assert_eq!(files, ["a.txt", "ü \n"]);
            assert!(text.contains("CONFLICT (content): Merge conflict in a.txt"), "{text}");
        }
        GitMergeOutcome::Clean { .. } => panic!("merged"),
    }
    let nothing: Oid = "1".repeat(40).as_str().into();
    assert!(matches!(scene.repo.merge(&left, &nothing), Err(GitError::Failed { .. })));
}

#[test]
fn how_to_merge_is_decided_by_the_target_and_never_by_the_branch() {
    let scene = Scene::new();
    let first = scene.tip("main");
    let trusted = scene.change(&first, &[(".gitattributes", Some("a.txt merge=union\n"))]);
    let edit = |base: &Oid, text: &str| scene.change(base, &[("a.txt", Some(text))]);
    let left = edit(&trusted, "left\ntwo\nthree\n");
    let right = edit(&trusted, "right\ntwo\nthree\n");
    let merged = scene.repo.merge(&left, &right).unwrap();
    if scene.repo.version() >= (2, 41) {
        clean(merged);
    } else {
        // It cannot be told whose attributes count, and then nobody's do.
        assert!(matches!(merged, GitMergeOutcome::Conflict { .. }), "{merged:?}");
    }

    let plain_left = edit(&first, "left\ntwo\nthree\n");
    let sly = scene.change(
        &first,
        &[("a.txt", Some("right\ntwo\nthree\n")), (".gitattributes", Some("a.txt merge=union\n"))],
    );
    let merged = scene.repo.merge(&plain_left, &sly).unwrap();
    assert!(matches!(merged, GitMergeOutcome::Conflict { .. }), "{merged:?}");
}

#[test]
fn the_same_commit_has_the_same_id_and_keeps_its_people() {
    let scene = Scene::new();
    let base = scene.tip("main");
    let tree = scene.repo.tree_of(&base).unwrap();
    let ada = who();
    let ours = super::GitIdentity::fallback();
    let make = |message| {
        scene
            .repo
            .commit_tree(
                &tree,
                std::slice::from_ref(&base),
                message,
                &ada,
                &ours,
                1_700_000_000_123,
            )
            .unwrap()
    };
    let commit = make("subject\n\nbody\n\nMainstem-Task: T-1\n");
    assert_eq!(commit, make("subject\n\nbody\n\nMainstem-Task: T-1\n"));
    assert_ne!(commit, make("other"));
    assert_eq!(scene.repo.read_author(&commit).unwrap(), ada);
    let nameless = super::GitIdentity { name: String::new(), email: String::new() };
    scene.repo.commit_tree(&tree, &[], "m", &nameless, &nameless, 0).unwrap();
}

#[test]
fn commits_are_replayed_with_their_authors_and_messages() {
    let scene = Scene::new();
    let base = scene.tip("main");
    let one = scene.change(&base, &[("n1", Some("1\n"))]);
    let two = scene.change(&one, &[("n2", Some("2\n"))]);
    let onto = scene.change(&base, &[("a.txt", Some("moved\n")), ("n1", Some("1\n"))]);
    let GitReplayOutcome::Clean { tip } = scene.repo.replay_commits(&base, &two, &onto).unwrap()
    else {
        panic!()
    };
    assert_eq!(scene.tip(&format!("{tip}^")), onto, "a commit that brings nothing is left out");
    assert_eq!(scene.show(&tip, "a.txt"), "moved\n");
    assert_eq!(scene.show(&tip, "n2"), "2\n");
    assert_eq!(scene.repo.read_author(&tip).unwrap(), who());
    let format = ["log", "-1", "--format=%B%ad"];
    let of = |commit: &Oid| git(&scene.top(), &[&format[..], &[commit.as_str()]].concat());
    assert_eq!(of(&tip), of(&two));
    assert_eq!(
        scene.repo.replay_commits(&base, &two, &onto).unwrap(),
        GitReplayOutcome::Clean { tip }
    );
    assert_eq!(
        scene.repo.replay_commits(&base, &base, &onto).unwrap(),
        GitReplayOutcome::Clean { tip: onto.clone() }
    );

    let clash = scene.change(&one, &[("a.txt", Some("mine\n"))]);
    let replayed = scene.repo.replay_commits(&base, &clash, &onto).unwrap();
    assert!(
        matches!(&replayed, GitReplayOutcome::Conflict { files, .. } if files == &["a.txt"]),
        "{replayed:?}"
    );
}

#[test]
fn a_replay_over_merges_becomes_one_commit() {
    let scene = Scene::new();
    let base = scene.tip("main");
    let one = scene.change(&base, &[("n1", Some("1\n"))]);
    let side = scene.change(&base, &[("n2", Some("2\n"))]);
    let tree = clean(scene.repo.merge(&one, &side).unwrap());
    let merge = scene.repo.commit_tree(&tree, &[one, side], "merged", &who(), &who(), 0).unwrap();
    let onto = scene.change(&base, &[("a.txt", Some("moved\n"))]);
    let GitReplayOutcome::Clean { tip } = scene.repo.replay_commits(&base, &merge, &onto).unwrap()
    else {
        panic!()
    };
    assert_eq!(scene.tip(&format!("{tip}^")), onto);
    let names = scene.names(&tip);
    assert!(names.contains(&"n1".to_owned()) && names.contains(&"n2".to_owned()));
}

#[test]
fn a_landing_can_be_taken_back_unless_others_built_on_it() {
    let scene = Scene::new();
    let base = scene.tip("main");
    let landed = scene.change(&base, &[("a.txt", Some("landed\n")), ("n", Some("n\n"))]);
    let head = scene.change(&landed, &[("dir/b.txt", Some("later\n"))]);
    let tree = clean(scene.repo.revert_in_memory(&landed, &head).unwrap());
    assert_eq!(scene.show(&tree, "a.txt"), "one\ntwo\nthree\n");
    assert_eq!(scene.show(&tree, "dir/b.txt"), "later\n");
    assert!(!scene.names(&tree).contains(&"n".to_owned()));
    let built = scene.change(&landed, &[("a.txt", Some("built on it\n"))]);
    let merge = scene.repo.revert_in_memory(&landed, &built).unwrap();
    assert!(matches!(merge, GitMergeOutcome::Conflict { .. }));
    assert!(scene.repo.revert_in_memory(&base, &built).is_err());
    // What a git without --merge-base is given must say the same.
    let by_hand = scene.repo.merge_tree_with_grafted_base(&landed, &head, &base).unwrap();
    assert_eq!(by_hand, GitMergeOutcome::Clean { tree });
    let by_hand = scene.repo.merge_tree_with_grafted_base(&landed, &built, &base).unwrap();
    assert!(matches!(by_hand, GitMergeOutcome::Conflict { .. }));
}

#[test]
fn landings_are_found_by_their_trailers_on_the_first_parent_line() {
    let scene = Scene::new();
    let base = scene.tip("main");
    let tree = scene.repo.tree_of(&base).unwrap();
    let make = |parents: &[&Oid], message: &str| {
        let parents: Vec<Oid> = parents.iter().map(|&id| id.clone()).collect();
        scene.repo.commit_tree(&tree, &parents, message, &who(), &who(), 0).unwrap()
    };
    let trailers =
        |task: &str| format!("Mainstem-Task: {task}\nMainstem-Attempt: 1\nMainstem-Run: r\n");
    let liar = make(&[&base], &format!("agent\n\n{}", trailers("T-9")));
    let one = make(&[&base, &liar], &format!("Land T-1\n\ntext\n\n{}", trailers("T-1")));
    let quoting =
        make(&[&one], "quotes\n\nMainstem-Task: T-8\nis what it said.\n\nNothing more here.\n");
    let ten = make(&[&quoting], &format!("Land T-10\n\n{}", trailers("T-10")));
    let find = |task, from: Option<&Oid>| {
        scene
            .repo
            .find_landing(&ten, &[("Mainstem-Task", task), ("Mainstem-Attempt", "1")], from)
            .unwrap()
    };
    assert_eq!(find("T-1", None), Some(one.clone()));
    assert_eq!(find("T-10", None), Some(ten.clone()));
    assert_eq!(find("T-9", None), None, "not on the first-parent line");
    assert_eq!(find("T-8", None), None, "not a trailer");
    assert_eq!(find("T-1", Some(&one)), None);
    let all = scene.repo.list_landings(&ten, None).unwrap();
    let commits: Vec<_> = all.iter().map(|landing| landing.commit.clone()).collect();
    assert_eq!(commits, [ten.clone(), one.clone()]);
    assert_eq!(all[1].parent, base);
    assert_eq!((all[1].subject.as_str(), &all[1].tree), ("Land T-1", &tree));
    assert_eq!(all[1].trailers[0], ("Mainstem-Task".to_owned(), "T-1".to_owned()));
    assert_eq!(scene.repo.list_landings(&ten, Some(&quoting)).unwrap().len(), 1);
    assert!(scene.repo.list_landings(&base, None).unwrap().is_empty());
}

#[test]
fn changes_are_counted_and_named() {
    let scene = Scene::new();
    let base = scene.tip("main");
    scene.write("a.txt", "one\n2\nthree\nfour\n");
    fs::rename(scene.top().join("dir/b.txt"), scene.top().join("moved\tü")).unwrap();
    fs::write(scene.top().join("bin"), [0, 1, 2, 0]).unwrap();
    let tip = scene.commit("many");
    let changes = scene.repo.diff_stats(&base, &tip).unwrap();
    let mut paths: Vec<_> = changes.files.iter().map(|file| file.path.as_str()).collect();
    paths.sort_unstable();
    assert_eq!(paths, ["a.txt", "bin", "moved\tü"]);
    assert_eq!((changes.insertions, changes.deletions), (2, 1));
    let bin = changes.files.iter().find(|file| file.path == "bin").unwrap();
    assert_eq!((bin.added, bin.removed), (None, None));
    assert_eq!(scene.repo.diff_stats(&base, &base).unwrap(), super::super::DiffStats::default());

    let patch = String::from_utf8(scene.repo.diff(&base, &tip, false).unwrap()).unwrap();
    assert!(patch.contains("--- a/a.txt\n+++ b/a.txt\n") && patch.contains("+2\n"), "{patch}");
    let colored = scene.repo.diff(&base, &tip, true).unwrap();
    assert!(colored.windows(2).any(|pair| pair == b"\x1b["));
    let other = scene.change(&base, &[("a.txt", Some("one\n 2\nthree\nfour\n"))]);
    let hash = scene.repo.diff_hash(&base, &tip).unwrap();
    assert_eq!(hash, scene.repo.diff_hash(&base, &tip).unwrap());
    assert_ne!(hash, scene.repo.diff_hash(&base, &other).unwrap());
}

#[test]
fn programs_set_for_diffs_do_not_run() {
    let scene = Scene::new();
    let base = scene.tip("main");
    let trace = scene.at("ran");
    let command = format!("touch '{}'; cat", trace.display());
    git(&scene.top(), &["config", "diff.external", &command]);
    git(&scene.top(), &["config", "diff.evil.textconv", &command]);
    let tip =
        scene.change(&base, &[("a.txt", Some("x\n")), (".gitattributes", Some("* diff=evil\n"))]);
    scene.repo.diff(&base, &tip, true).unwrap();
    scene.repo.diff_stats(&base, &tip).unwrap();
    scene.repo.find_hygiene_flaws(&base, &tip, 10).unwrap();
    assert!(!trace.exists());
}

#[test]
fn flaws_of_a_change_are_found_and_old_ones_are_not_its_fault() {
    let scene = Scene::new();
    let markers = "<<<<<<< ours\na\n=======\nb\n>>>>>>> theirs\n";
    scene.write("old markers.txt", markers);
    scene.write("old big", &"x".repeat(500));
    let base = scene.commit("with old flaws");
    assert_eq!(scene.repo.find_hygiene_flaws(&base, &base, 100).unwrap(), []);
    let fine = scene.change(&base, &[("doc.md", Some("Title\n=======\n<<<<<<< quoted\n"))]);
    assert_eq!(scene.repo.find_hygiene_flaws(&base, &fine, 100).unwrap(), []);

    scene.write("new ü.txt", markers);
    scene.write("big\n", &"x".repeat(101));
    scene.write("A.TXT", "clash");
    scene.write("DIR", "clash with nothing but a folder");
    let nested = scene.top().join("nested");
    fs::create_dir(&nested).unwrap();
    git(&nested, &["init", "-q"]);
    super::commit(&nested, "inner");
    let tip = scene.commit("flawed");
    let mut flaws: Vec<String> = scene
        .repo
        .find_hygiene_flaws(&base, &tip, 100)
        .unwrap()
        .iter()
        .map(HygieneFlaw::to_string)
        .collect();
    flaws.sort();
    assert_eq!(flaws.len(), 4, "{flaws:#?}");
    assert!(flaws[0].starts_with("A.TXT: differs from a.txt"));
    assert!(flaws[1].starts_with("big\n: 101 bytes"));
    assert!(flaws[2].starts_with("nested: a nested repository"));
    assert!(flaws[3].starts_with("new ü.txt: conflict markers"));
    let unlimited = scene.repo.find_hygiene_flaws(&base, &tip, 0).unwrap();
    assert!(!unlimited.iter().any(|flaw| matches!(flaw, HygieneFlaw::TooLarge { .. })));
}

#[test]
fn a_tree_with_a_git_folder_inside_is_a_flaw() {
    let scene = Scene::new();
    let base = scene.tip("main");
    let blob = git(&scene.top(), &["rev-parse", "HEAD:a.txt"]);
    let inner = scene
        .repo
        .git()
        .args(["mktree"])
        .stdin_bytes(format!("100644 blob {}\tconfig\n", blob.trim()));
    let inner = inner.run().unwrap().single_line().unwrap().to_owned();
    let outer =
        scene.repo.git().args(["mktree"]).stdin_bytes(format!("040000 tree {inner}\t.GIT\n"));
    let tree: Oid = outer.run().unwrap().single_line().unwrap().into();
    let tip = scene
        .repo
        .commit_tree(&tree, std::slice::from_ref(&base), "sly", &who(), &who(), 0)
        .unwrap();
    let flaws = scene.repo.find_hygiene_flaws(&base, &tip, 0).unwrap();
    assert_eq!(flaws, [HygieneFlaw::GitComponent { path: ".GIT/config".into() }]);
}

/// Moves main to a commit that edits one file, adds one and deletes one.
fn land(scene: &Scene) -> (Oid, Oid) {
    let old = scene.tip("main");
    let new = scene.change(
        &old,
        &[("a.txt", Some("landed\n")), ("n ü/x", Some("new\n")), ("dir/b.txt", None)],
    );
    let moved = scene.repo.update_ref("refs/heads/main", &new, Some(&old), "land").unwrap();
    assert_eq!(moved, RefUpdateOutcome::Moved);
    (old, new)
}

#[test]
fn a_clean_checkout_follows_and_unrelated_files_stay() {
    let scene = Scene::new();
    scene.write("notes.txt", "untracked");
    scene.write(".gitignore", "*.ignored\ntarget/\nmore\n");
    // The same content with a new time is no edit.
    scene.write("a.txt", "one\ntwo\nthree\n");
    let (old, new) = land(&scene);
    assert_eq!(scene.repo.update_checkouts("main", &old, &new).unwrap(), CheckoutUpdate::Updated);
    assert_eq!(fs::read_to_string(scene.top().join("a.txt")).unwrap(), "landed\n");
    assert_eq!(fs::read_to_string(scene.top().join("n ü/x")).unwrap(), "new\n");
    assert!(!scene.top().join("dir/b.txt").exists());
    assert_eq!(git(&scene.top(), &["status", "--porcelain"]), " M .gitignore\n?? notes.txt\n");
    assert_eq!(scene.repo.update_checkouts("main", &old, &new).unwrap(), CheckoutUpdate::Updated);
    assert_eq!(
        scene.repo.update_checkouts("other", &old, &new).unwrap(),
        CheckoutUpdate::NotCheckedOut
    );
}

#[test]
fn a_landing_waits_for_a_checkout_with_something_to_lose_and_leaves_it_exactly_as_it_is() {
    type Dirt = fn(&Scene);
    let cases: &[(&str, Dirt)] = &[
        ("edited", |scene| scene.write("a.txt", "my edit\n")),
        ("staged", |scene| {
            scene.write("a.txt", "my edit\n");
            git(&scene.top(), &["add", "a.txt"]);
        }),
        ("untracked in the way", |scene| scene.write("n ü/x", "mine\n")),
        ("a file where a folder must be", |scene| scene.write("n ü", "mine\n")),
        ("a folder where a file must be", |scene| scene.write("n ü/x/deep", "mine\n")),
        ("ignored in the way", |scene| {
            fs::write(scene.repo.common_dir().join("info/exclude"), "x\n").unwrap();
            scene.write("n ü/x", "my only copy\n");
        }),
        ("edited where it is deleted", |scene| scene.write("dir/b.txt", "my edit\n")),
        ("removed from the index", |scene| {
            git(&scene.top(), &["rm", "-q", "--cached", "a.txt"]);
        }),
        ("cherry-pick under way", |scene| {
            let path = scene.repo.common_dir().join("CHERRY_PICK_HEAD");
            fs::write(path, format!("{}\n", scene.tip("main"))).unwrap();
        }),
        ("git at work", |scene| {
            fs::write(scene.repo.common_dir().join("index.lock"), "").unwrap();
        }),
    ];
    for (name, dirty) in cases {
        let scene = Scene::new();
        dirty(&scene);
        let old = scene.tip("main");
        let new = scene.change(
            &old,
            &[("a.txt", Some("landed\n")), ("n ü/x", Some("new\n")), ("dir/b.txt", None)],
        );
        let index = fs::read(scene.repo.common_dir().join("index")).unwrap();
        let before = plain(&scene.top(), &["status", "--porcelain", "-uall"]).stdout;
        let ready = scene.repo.lock_checkouts("main", &old, &new).unwrap();
        let CheckoutReadiness::Blocked(way) = ready else { panic!("{name}: {ready:?}") };
        assert_eq!(way.checkout, scene.top(), "{name}");
        assert_eq!(way.paths.len() + usize::from(way.trouble.is_some()), 1, "{name}: {way:?}");
        let seen = scene.repo.find_blocked_checkout("main", &old, &new).unwrap();
        assert_eq!(seen, Some(way), "{name}: a look sees what a landing meets");
        assert!(!scene.repo.common_dir().join("mainstem-left").exists(), "{name}");
        assert_eq!(fs::read(scene.repo.common_dir().join("index")).unwrap(), index, "{name}");
        let after = plain(&scene.top(), &["status", "--porcelain", "-uall"]).stdout;
        assert_eq!(after, before, "{name}");
    }
}

#[test]
fn a_linked_checkout_of_the_branch_follows_as_well() {
    let scene = Scene::new();
    git(&scene.top(), &["checkout", "-q", "--detach"]);
    let linked = scene.at("linked");
    git(&scene.top(), &["worktree", "add", "-q", linked.to_str().unwrap(), "main"]);
    let (old, new) = land(&scene);
    assert_eq!(scene.repo.update_checkouts("main", &old, &new).unwrap(), CheckoutUpdate::Updated);
    assert_eq!(git(&linked, &["status", "--porcelain"]), "");
    assert_eq!(fs::read_to_string(linked.join("a.txt")).unwrap(), "landed\n");
    write(&linked, "a.txt", "edit\n");
    assert_eq!(fs::read_to_string(scene.top().join("a.txt")).unwrap(), "one\ntwo\nthree\n");
}

#[test]
fn what_would_run_a_command_for_a_submodule_is_a_flaw() {
    let scene = Scene::new();
    let base = scene.repo.read_ref("refs/heads/main").unwrap().unwrap();
    let flaws = |text: &str| {
        let tip = scene.change(&base, &[(".gitmodules", Some(text))]);
        scene.repo.find_hygiene_flaws(&base, &tip, 0).unwrap()
    };
    let module = |line: &str| format!("[submodule \"e\"]\n\tpath = e\n\t{line}\n");
    for line in ["update = !touch x", "url = ext::touch x", "url = -u./x", "path = -x", "[broken"] {
        let found = flaws(&module(line));
        assert!(matches!(found[..], [HygieneFlaw::BadGitmodules { .. }]), "{line}: {found:?}");
    }
    let named = flaws("[submodule \"../e\"]\n\tpath = e\n\turl = ./e\n");
    assert!(
        !named.is_empty() && named.iter().all(|f| matches!(f, HygieneFlaw::BadGitmodules { .. }))
    );
    for line in ["url = https://example.invalid/e.git", "url = ../e", "update = rebase"] {
        assert_eq!(flaws(&module(line)), [], "{line}");
    }
}
