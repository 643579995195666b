use std::os::unix::fs::PermissionsExt;

use super::super::{BranchPublishOutcome, BranchPushOutcome, GitRemote};
use super::{Scene, git};

fn with_remote() -> (Scene, GitRemote) {
    let scene = Scene::new();
    let bare = scene.at("far away.git");
    git(&scene.top(), &["init", "-q", "--bare", bare.to_str().unwrap()]);
    git(&scene.top(), &["remote", "add", "far", bare.to_str().unwrap()]);
    (scene, GitRemote::new("far"))
}

#[test]
fn a_push_moves_the_branch_only_from_where_it_is_known_to_be() {
    let (scene, far) = with_remote();
    let first = scene.tip("main");
    let mine = scene.change(&first, &[("a.txt", Some("mine"))]);
    let theirs = scene.change(&first, &[("a.txt", Some("theirs"))]);
    let push = |tip, lease| scene.repo.push_branch(&far, "mainstem/T-1", tip, lease);
    assert_eq!(scene.repo.read_remote_branch(&far, "mainstem/T-1").unwrap(), None);
    assert_eq!(push(&mine, None).unwrap(), BranchPushOutcome::Done);
    assert_eq!(
        push(&mine, None).unwrap(),
        BranchPushOutcome::Done,
        "the second time finds the first"
    );
    let found = Some(mine.clone());
    assert_eq!(push(&theirs, None).unwrap(), BranchPushOutcome::Refused { found: found.clone() });
    assert_eq!(push(&theirs, Some(&first)).unwrap(), BranchPushOutcome::Refused { found });
    assert_eq!(push(&theirs, Some(&mine)).unwrap(), BranchPushOutcome::Done);
    assert_eq!(scene.repo.read_remote_branch(&far, "mainstem/T-1").unwrap(), Some(theirs.clone()));
    git(&scene.top(), &["push", "-q", "far", "--delete", "mainstem/T-1"]);
    assert_eq!(push(&mine, Some(&theirs)).unwrap(), BranchPushOutcome::Refused { found: None });
}

#[test]
fn a_branch_is_fetched_into_one_ref_and_its_absence_is_an_answer() {
    let (scene, far) = with_remote();
    let first = scene.tip("main");
    let into = "refs/mainstem/upstream/main";
    assert_eq!(scene.repo.fetch_branch(&far, "main", into).unwrap(), None);
    scene.repo.push_branch(&far, "main", &first, None).unwrap();
    assert_eq!(scene.repo.fetch_branch(&far, "main", into).unwrap(), Some(first.clone()));
    let next = scene.change(&first, &[("a.txt", Some("next"))]);
    scene.repo.push_branch(&far, "main", &next, Some(&first)).unwrap();
    assert_eq!(scene.repo.fetch_branch(&far, "main", into).unwrap(), Some(next));
    assert_eq!(scene.repo.read_remote_url("nowhere").unwrap(), None);
}

#[test]
fn a_fetch_that_another_fetch_of_the_same_branch_overtakes_succeeds() {
    let (scene, far) = with_remote();
    let first = scene.tip("main");
    let into = "refs/mainstem/upstream/main";
    scene.repo.push_branch(&far, "main", &first, None).unwrap();
    scene.repo.fetch_branch(&far, "main", into).unwrap();
    let next = scene.change(&first, &[("a.txt", Some("next"))]);
    scene.repo.push_branch(&far, "main", &next, Some(&first)).unwrap();
    // The first call of the program asks where the branch is; in the second, the fetch itself, another
    // fetch has moved the ref before this one can.
    let (program, asked) = (scene.at("upload-pack"), scene.at("asked"));
    let script = format!(
        "#!/bin/sh\nif [ -e '{asked}' ]; then git -C '{top}' update-ref {into} {next}; fi\n\
         touch '{asked}'\nexec git-upload-pack \"$@\"\n",
        asked = asked.display(),
        top = scene.top().display(),
    );
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = program.display().to_string();
    git(&scene.top(), &["config", "remote.far.uploadpack", &format!("'{program}'")]);
    assert_eq!(scene.repo.fetch_branch(&far, "main", into).unwrap(), Some(next));
}

#[test]
fn a_remote_that_cannot_be_reached_is_an_error_and_not_absent() {
    let (scene, far) = with_remote();
    std::fs::rename(scene.at("far away.git"), scene.at("gone.git")).unwrap();
    let tip = scene.tip("main");
    assert!(scene.repo.read_remote_branch(&far, "main").is_err());
    assert!(scene.repo.push_branch(&far, "main", &tip, None).is_err());
    assert!(scene.repo.fetch_branch(&far, "main", "refs/mainstem/upstream/main").is_err());
}

#[test]
fn a_remote_that_says_no_is_told_apart_from_one_whose_branch_moved() {
    let (scene, far) = with_remote();
    let first = scene.tip("main");
    scene.repo.push_branch(&far, "main", &first, None).unwrap();
    let hook = scene.at("far away.git/hooks/pre-receive");
    std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
    std::fs::write(&hook, "#!/bin/sh\necho not today >&2\nexit 1\n").unwrap();
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
    let next = scene.change(&first, &[("a.txt", Some("next"))]);
    let publish = |lease| scene.repo.publish_branch(&far, "main", &next, lease).unwrap();
    let said = publish(Some(&first));
    let BranchPublishOutcome::Denied(error) = said else { panic!("{said:?}") };
    assert!(error.to_string().contains("not today"), "{error}");
    let said = publish(None);
    assert!(
        matches!(&said, BranchPublishOutcome::Moved { found: Some(found) } if *found == first),
        "{said:?}"
    );
    std::fs::remove_file(&hook).unwrap();
    assert!(matches!(publish(Some(&first)), BranchPublishOutcome::Done));
}

#[test]
fn an_address_that_is_a_path_is_meant_as_seen_from_the_checkout() {
    let (scene, far) = with_remote();
    let first = scene.tip("main");
    scene.repo.push_branch(&far, "main", &first, None).unwrap();
    std::fs::rename(scene.at("far away.git"), scene.top().join("near.git")).unwrap();
    git(&scene.top(), &["remote", "set-url", "far", "./near.git"]);
    assert_eq!(scene.repo.read_remote_branch(&far, "main").unwrap(), Some(first));
}
