use std::fs;

use crate::git::BranchDeletion;

use super::{KEEP, Scene, commit, git, write};

const BRANCH: &str = "mainstem/t-1";
const BRANCH_REF: &str = "refs/heads/mainstem/t-1";

#[test]
fn a_tip_nothing_else_holds_is_kept_and_only_then() {
    let scene = Scene::new();
    let repo = &scene.repo;
    let base = scene.tip("main");
    let keep = |also| repo.keep_ref_tip(BRANCH_REF, KEEP, also, "test").unwrap();
    assert_eq!(keep(None), None);
    let work = scene.change(&base, &[("w", Some("1"))]);
    git(&scene.top(), &["branch", BRANCH, work.as_str()]);
    assert_eq!(keep(Some(&work)), None);
    assert_eq!(keep(Some(&base)).as_deref(), Some("refs/mainstem/snapshots/t-1/1/1"));
    assert_eq!(scene.tip("refs/mainstem/snapshots/t-1/1/1"), work);
    assert_eq!(keep(Some(&base)), None);

    // An ancestor of what another attempt keeps is held, another task's is not asked.
    let later = scene.change(&work, &[("w", Some("2"))]);
    git(&scene.top(), &["branch", "-f", BRANCH, later.as_str()]);
    git(&scene.top(), &["update-ref", "refs/mainstem/snapshots/t-2/1/1", later.as_str()]);
    assert_eq!(keep(None).as_deref(), Some("refs/mainstem/snapshots/t-1/1/2"));
    let latest = scene.change(&later, &[("w", Some("3"))]);
    git(&scene.top(), &["branch", "-f", BRANCH, later.as_str()]);
    git(&scene.top(), &["update-ref", "-d", "refs/mainstem/snapshots/t-1/1/2"]);
    git(&scene.top(), &["update-ref", "refs/mainstem/snapshots/t-1/7/1", latest.as_str()]);
    assert_eq!(keep(None), None);
}

#[test]
fn preparing_a_workspace_keeps_what_its_branch_held() {
    let has_reftables = Scene::new().repo.version() >= (2, 45);
    for init in [&[][..], &["--ref-format=reftable"]] {
        // A git that cannot make such a repository cannot be met in one.
        if !init.is_empty() && !has_reftables {
            continue;
        }
        let scene = Scene::empty(init);
        scene.write("a.txt", "a\n");
        let base = scene.commit("first");
        let path = scene.at("work");
        let prepare = || {
            let trash = scene.trash();
            let prepared = scene.repo.prepare_worktree(&path, BRANCH, &base, &trash, KEEP);
            let prepared = prepared.unwrap();
            assert_eq!(git(&path, &["rev-parse", "HEAD"]).trim(), base.as_str());
            assert_eq!(git(&path, &["symbolic-ref", "HEAD"]).trim(), BRANCH_REF);
            assert_eq!(git(&path, &["status", "--porcelain"]), "");
            prepared.kept
        };
        assert_eq!(prepare(), None);
        // Recycled with a commit on it.
        write(&path, "b", "more");
        let more = commit(&path, "agent");
        let kept = prepare().unwrap();
        assert_eq!(scene.tip(&kept), more, "{init:?}");
        // What the base holds needs no ref.
        assert_eq!(prepare(), None);
    }
}

#[test]
fn a_branch_that_somebody_else_made_is_never_moved_and_never_deleted() {
    let has_reftables = Scene::new().repo.version() >= (2, 45);
    for init in [&[][..], &["--ref-format=reftable"]] {
        if !init.is_empty() && !has_reftables {
            continue;
        }
        let scene = Scene::empty(init);
        scene.write("a.txt", "a\n");
        let base = scene.commit("first");
        let path = scene.at("work");
        let prepare = || {
            let trash = scene.trash();
            let made = scene.repo.prepare_worktree(&path, BRANCH, &base, &trash, KEEP).unwrap();
            assert_eq!(made.kept, None);
            made.branch.unwrap()
        };
        let before = scene.change(&base, &[("b", Some("precious"))]);
        git(&scene.top(), &["branch", BRANCH, before.as_str()]);
        let other = format!("{BRANCH}+2");
        for _ in 0..2 {
            assert_eq!(prepare(), other);
            assert_eq!(scene.tip(BRANCH_REF), before);
        }
        assert!(!scene.repo.owns_branch(BRANCH).unwrap());
        assert!(scene.repo.owns_branch(&other).unwrap());
        let kept = |branch: &str, tip| {
            matches!(scene.repo.delete_owned_branch(branch, tip).unwrap(), BranchDeletion::Kept(_))
        };
        assert!(kept(BRANCH, &before));
        scene.repo.remove_worktree(&path, &scene.trash()).unwrap();
        assert!(!kept(&other, &base));
        assert_eq!(scene.repo.read_ref(&format!("refs/heads/{other}")).unwrap(), None);
        assert_eq!(scene.repo.list_owned_branches().unwrap().len(), 0);
        assert_eq!(scene.tip(BRANCH_REF), before);
    }
}

#[test]
fn a_branch_left_for_a_person_is_ours_until_somebody_commits_to_it() {
    let scene = Scene::new();
    let (repo, base) = (&scene.repo, scene.tip("main"));
    let path = scene.at("work");
    let prepare = || repo.prepare_worktree(&path, BRANCH, &base, &scene.trash(), KEEP).unwrap();
    let hand_over = |tip| {
        repo.remove_worktree(&path, &scene.trash()).unwrap();
        assert!(repo.hand_over_branch(BRANCH, tip).unwrap());
        assert_eq!(scene.tip(BRANCH), *tip);
    };
    let _ = prepare();
    let work = scene.change(&base, &[("b", Some("work"))]);
    hand_over(&work);
    assert_eq!(prepare().branch.as_deref(), Some(BRANCH));
    hand_over(&work);
    let fix = scene.change(&work, &[("b", Some("fixed by hand"))]);
    git(&scene.top(), &["branch", "-f", BRANCH, fix.as_str()]);
    assert!(!repo.owns_branch(BRANCH).unwrap());
    assert_eq!(prepare().branch, Some(format!("{BRANCH}+2")));
    assert_eq!(scene.tip(BRANCH), fix);
    // A mark without its branch says nothing of a branch that comes later.
    git(&scene.top(), &["update-ref", "refs/mainstem/owned/mainstem/gone", base.as_str()]);
    repo.sweep_branch_marks().unwrap();
    git(&scene.top(), &["branch", "mainstem/gone"]);
    assert!(!repo.owns_branch("mainstem/gone").unwrap());
}

#[test]
fn a_branch_that_points_at_another_one_does_not_drag_it_along() {
    let scene = Scene::new();
    let base = scene.tip("main");
    let tip = scene.change(&base, &[("b", Some("precious"))]);
    git(&scene.top(), &["update-ref", "refs/heads/other", tip.as_str()]);
    git(&scene.top(), &["symbolic-ref", BRANCH_REF, "refs/heads/other"]);
    let path = scene.at("work");
    let made = scene.repo.prepare_worktree(&path, BRANCH, &base, &scene.trash(), KEEP).unwrap();
    assert_eq!(made.branch, Some(format!("{BRANCH}+2")));
    assert_eq!(scene.tip("refs/heads/other"), tip);
    assert_eq!(git(&scene.top(), &["symbolic-ref", BRANCH_REF]).trim(), "refs/heads/other");
    assert_eq!(scene.repo.resolve_branch_alias(BRANCH).unwrap(), "other");
    assert_eq!(scene.repo.resolve_branch_alias("main").unwrap(), "main");
}

#[test]
fn a_branch_whose_commit_is_lost_is_usable_again() {
    let scene = Scene::new();
    let base = scene.tip("main");
    let loose = scene.repo.common_dir().join(BRANCH_REF);
    fs::create_dir_all(loose.parent().unwrap()).unwrap();
    fs::write(&loose, format!("{}\n", "1".repeat(40))).unwrap();
    let path = scene.at("work");
    git(&scene.top(), &["update-ref", &format!("refs/mainstem/owned/{BRANCH}"), base.as_str()]);
    let prepared = scene.repo.prepare_worktree(&path, BRANCH, &base, &scene.trash(), KEEP);
    assert_eq!(prepared.unwrap().kept, None);
    assert_eq!(scene.tip(BRANCH_REF), base);
    // Nor does a snapshot that is lost hold anything, or stand in the way.
    let lost = scene.repo.common_dir().join(KEEP).join("1");
    fs::create_dir_all(lost.parent().unwrap()).unwrap();
    fs::write(&lost, format!("{}\n", "1".repeat(40))).unwrap();
    write(&path, "b", "precious");
    let work = commit(&path, "agent");
    let prepared = scene.repo.prepare_worktree(&path, BRANCH, &base, &scene.trash(), KEEP);
    assert_eq!(scene.tip(&prepared.unwrap().kept.unwrap()), work);
}

#[test]
fn a_branch_named_like_our_folder_of_branches_is_named_and_does_not_stop_a_sweep() {
    let scene = Scene::new();
    let room = |prefix| scene.repo.find_blocking_branch(prefix).unwrap();
    assert_eq!(room("mainstem"), None);
    git(&scene.top(), &["branch", "mainstem"]);
    let lock = scene.repo.common_dir().join("refs/mainstem/snapshots/x.lock");
    fs::create_dir_all(lock.parent().unwrap()).unwrap();
    fs::write(&lock, "").unwrap();
    let swept = scene.repo.sweep_stale_locks(None).unwrap();
    assert_eq!(swept.removed, [lock]);
    assert_eq!(room("mainstem/").as_deref(), Some("mainstem"));
    assert_eq!(room("mainstem/t/deep").as_deref(), Some("mainstem"));
    git(&scene.top(), &["pack-refs", "--all"]);
    assert_eq!(room("mainstem").as_deref(), Some("mainstem"));
    git(&scene.top(), &["branch", "-m", "mainstem", "other"]);
    assert_eq!(room("mainstem"), None);
    git(&scene.top(), &["branch", BRANCH]);
    assert_eq!(room("mainstem"), None);
}

#[test]
fn needles_are_found_in_everything_new_also_in_what_was_taken_out_again() {
    let scene = Scene::new();
    scene.write("old.txt", "old-needle\n");
    let base = scene.commit("old");
    let path = scene.at("side");
    git(&scene.top(), &["worktree", "add", "-q", "-b", "side", path.to_str().unwrap()]);
    fs::write(path.join("bin"), b"\0\xff\0binary\0needle\xfe").unwrap();
    write(&path, "key.pem", "gone-needle");
    commit(&path, "adds");
    fs::remove_file(path.join("key.pem")).unwrap();
    git(&path, &["add", "-A"]);
    git(&path, &["commit", "-q", "-m", "clean up\n\nmessage-needle"]);
    write(&path, "name-needle", "x");
    // More than any answer of git's that is kept whole.
    let mut large = vec![0; 65 << 20];
    large.extend_from_slice(b"large-needle");
    fs::write(path.join("large"), &large).unwrap();
    let tip = commit(&path, "large");
    let needles: Vec<Vec<u8>> = [
        &b"old-needle"[..],
        b"binary\0needle",
        b"gone-needle",
        b"message-needle",
        b"name-needle",
        b"large-needle",
        b"gone-",
        b"",
        b"nowhere-needle",
    ]
    .map(<[u8]>::to_vec)
    .into();
    let find = |base, tip| scene.repo.find_needles_in_history(base, tip, &needles).unwrap();
    assert_eq!(find(&base, &tip), [1, 2, 3, 4, 5]);
    assert_eq!(find(&tip, &tip), [0; 0]);
    assert_eq!(scene.repo.find_needles_in_history(&base, &tip, &[]).unwrap(), [0; 0]);
}

#[test]
fn a_replaced_object_does_not_hide_the_real_one() {
    let scene = Scene::new();
    let base = scene.tip("main");
    let tip = scene.change(&base, &[("k", Some("real-needle"))]);
    let harmless = scene.change(&base, &[("k", Some("harmless"))]);
    let blob = |commit| git(&scene.top(), &["rev-parse", &format!("{commit}:k")]);
    git(&scene.top(), &["replace", blob(&tip).trim(), blob(&harmless).trim()]);
    git(&scene.top(), &["replace", tip.as_str(), harmless.as_str()]);
    let needles = [b"real-needle".to_vec()];
    assert_eq!(scene.repo.find_needles_in_history(&base, &tip, &needles).unwrap(), [0]);
}

#[test]
fn an_object_that_is_missing_is_an_error_and_not_nothing_found() {
    let scene = Scene::new();
    let base = scene.tip("main");
    let tip = scene.change(&base, &[("k", Some("lost"))]);
    let blob = git(&scene.top(), &["rev-parse", &format!("{tip}:k")]);
    let (start, rest) = blob.trim().split_at(2);
    fs::remove_file(scene.repo.common_dir().join("objects").join(start).join(rest)).unwrap();
    assert!(scene.repo.find_needles_in_history(&base, &tip, &[b"whatever".to_vec()]).is_err());
}
