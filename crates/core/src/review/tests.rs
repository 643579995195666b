use proptest::prelude::*;

use super::review_files::{
    FileChangeKind, FileRisk, ReviewFile, classify_risk, reason_to_skip, reviewer_share,
    select_files,
};
use super::*;
use crate::config::{ReviewMode, ReviewerSettings};

fn finding(severity: Severity, file: &str, line: u64, category: &str, text: &str) -> ReviewFinding {
    ReviewFinding {
        severity,
        category: category.to_owned(),
        file: file.to_owned(),
        line,
        description: text.to_owned(),
        suggestion: String::new(),
        agents: Vec::new(),
    }
}

const POLICY: ReviewPolicy =
    ReviewPolicy { changes_at: Severity::Medium, blocks_at: Severity::Critical };

#[test]
fn what_two_say_of_one_place_is_one_finding_as_bad_as_the_worse_saw_it() {
    let reports = [
        ("qa".to_owned(), vec![finding(Severity::Low, "a.rs", 3, "Bug", "off by one")]),
        (
            "sec".to_owned(),
            vec![
                finding(Severity::High, "a.rs", 3, "bug ", "reads past the end"),
                finding(Severity::Info, "a.rs", 3, "style", "long line"),
            ],
        ),
    ];
    let (found, stats) = consolidate_findings(&reports);
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].severity, Severity::High);
    assert_eq!(found[0].agents, ["qa", "sec"]);
    assert_eq!(found[0].description, "reads past the end [qa: off by one]");
    assert_eq!((stats.inputs, stats.unique, stats.duplicates), (3, 2, 1));
    assert_eq!((stats.escalations, stats.overlap_percent), (1, 50));
    assert_eq!(found[0].to_line(), "[high] a.rs:3 (bug): reads past the end [qa: off by one]");
}

#[test]
fn the_worst_opinion_wins_and_severities_count_as_set() {
    let said = |verdict| ReviewerOutcome::Said { verdict, findings: Vec::new() };
    let all = [said(ReviewOpinion::Approved), said(ReviewOpinion::Approved)];
    assert_eq!(judge_review(all.iter(), &[], POLICY), ReviewOpinion::Approved);
    let low = [finding(Severity::Low, "a", 1, "x", "y")];
    assert_eq!(judge_review(all.iter(), &low, POLICY), ReviewOpinion::Approved);
    let medium = [finding(Severity::Medium, "a", 1, "x", "y")];
    assert_eq!(judge_review(all.iter(), &medium, POLICY), ReviewOpinion::ChangesNeeded);
    let critical = [finding(Severity::Critical, "a", 1, "x", "y")];
    assert_eq!(judge_review(all.iter(), &critical, POLICY), ReviewOpinion::Blocking);
    let one =
        [said(ReviewOpinion::Approved), ReviewerOutcome::Failed { why: "no JSON".to_owned() }];
    assert_eq!(judge_review(one.iter(), &[], POLICY), ReviewOpinion::ChangesNeeded);
    let skipped = [ReviewerOutcome::Skipped { why: String::new() }];
    assert_eq!(judge_review(skipped.iter(), &[], POLICY), ReviewOpinion::Approved);
}

fn file(path: &str, lines: u64) -> ReviewFile {
    ReviewFile {
        path: path.to_owned(),
        old: None,
        change: FileChangeKind::Modified,
        added: Some(lines),
        removed: Some(0),
        risk: FileRisk::Normal,
    }
}

#[test]
fn conditions_excuse_a_reviewer() {
    let infra =
        ReviewerSettings { paths: vec![".github/**".to_owned()], ..ReviewerSettings::default() };
    assert!(reason_to_skip(&infra, &[file("src/a.rs", 500)]).is_some());
    assert_eq!(reason_to_skip(&infra, &[file(".github/workflows/ci.yml", 1)]), None);
    let moved = ReviewFile { old: Some(".github/x".to_owned()), ..file("x", 1) };
    assert_eq!(reason_to_skip(&infra, &[moved]), None);
    let simple = ReviewerSettings { min_lines: 50, ..ReviewerSettings::default() };
    assert!(reason_to_skip(&simple, &[file("a", 49)]).is_some());
    assert_eq!(reason_to_skip(&simple, &[file("a", 20), file("b", 30)]), None);
    assert!(reason_to_skip(&ReviewerSettings::default(), &[]).is_some());
}

#[test]
fn filters_and_risk_decide_what_is_shown_first() {
    let (high, low) = (vec!["**/auth/**".to_owned()], vec!["**/*.md".to_owned()]);
    assert_eq!(classify_risk("src/auth/login.rs", &high, &low), FileRisk::High);
    assert_eq!(classify_risk("docs/x.md", &high, &low), FileRisk::Low);
    assert_eq!(classify_risk("src/a.rs", &high, &low), FileRisk::Normal);
    let files = vec![
        file("z.rs", 1),
        file("a.lock", 1),
        ReviewFile { risk: FileRisk::High, ..file("y.rs", 1) },
    ];
    let picked = select_files(files, &["rs".to_owned()], &[]);
    assert_eq!(picked.iter().map(|f| f.path.as_str()).collect::<Vec<_>>(), ["y.rs", "z.rs"]);
}

fn any_finding() -> impl Strategy<Value = ReviewFinding> {
    let severity = prop::sample::select(Severity::ALL.to_vec());
    (severity, "[ab]", 0u64..3, "[xy]", "[a-d]{1,8}").prop_map(
        |(severity, file, line, category, text)| finding(severity, &file, line, &category, &text),
    )
}

fn any_reports() -> impl Strategy<Value = Vec<(String, Vec<ReviewFinding>)>> {
    let named = ("[pqr]", prop::collection::vec(any_finding(), 0..6));
    prop::collection::vec(named, 0..4)
}

proptest! {
    #[test]
    fn nothing_is_lost_and_nothing_is_milder(reports in any_reports()) {
        let (found, stats) = consolidate_findings(&reports);
        let all: Vec<&ReviewFinding> = reports.iter().flat_map(|(_, findings)| findings).collect();
        prop_assert_eq!(stats.inputs, all.len() as u64);
        prop_assert_eq!(stats.unique, found.len() as u64);
        prop_assert_eq!(stats.inputs, stats.unique + stats.duplicates);
        prop_assert_eq!(stats.per_agent.values().sum::<u64>(), stats.inputs);
        prop_assert_eq!(stats.per_severity.values().sum::<u64>(), stats.unique);
        for one in &all {
            let same = |f: &&ReviewFinding| (&f.file, f.line, &f.category) == (&one.file, one.line, &one.category);
            let kept: Vec<&ReviewFinding> = found.iter().filter(same).collect();
            prop_assert_eq!(kept.len(), 1);
            prop_assert!(kept[0].severity >= one.severity);
            let worst = all.iter().filter(|f| same(f)).map(|f| f.severity).max();
            prop_assert_eq!(Some(kept[0].severity), worst);
        }
        prop_assert!(found.windows(2).all(|pair| pair[0].severity >= pair[1].severity));
    }

    #[test]
    fn the_order_of_reports_does_not_count(reports in any_reports(), turn in 0usize..4) {
        let mut turned = reports.clone();
        if !turned.is_empty() {
            let by = turn % turned.len();
            turned.rotate_left(by);
        }
        turned.iter_mut().for_each(|(_, findings)| findings.reverse());
        prop_assert_eq!(consolidate_findings(&reports), consolidate_findings(&turned));
    }

    #[test]
    fn a_further_finding_never_makes_the_verdict_better(
        findings in prop::collection::vec(any_finding(), 0..6),
        more in any_finding(),
    ) {
        let before = judge_review([].iter(), &findings, POLICY);
        let after = judge_review([].iter(), &[findings, vec![more]].concat(), POLICY);
        prop_assert!(after >= before);
    }

    #[test]
    fn shares_are_disjoint_and_complete(sizes in prop::collection::vec(0u64..100, 0..30), of in 1usize..5) {
        let files: Vec<ReviewFile> =
            sizes.iter().enumerate().map(|(i, lines)| file(&format!("f{i}"), *lines)).collect();
        let mut seen: Vec<String> = (0..of)
            .flat_map(|at| reviewer_share(&files, ReviewMode::Split, of, at))
            .map(|file| file.path)
            .collect();
        seen.sort();
        let mut all: Vec<String> = files.iter().map(|file| file.path.clone()).collect();
        all.sort();
        prop_assert_eq!(seen, all);
        prop_assert_eq!(reviewer_share(&files, ReviewMode::All, of, 0).len(), files.len());
    }
}
