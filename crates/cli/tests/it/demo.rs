//! The offline tour that the README shows first.

use mainstem_testkit::TestScene;

const BIN: &str = env!("CARGO_BIN_EXE_mainstem");

#[test]
fn every_claim_of_the_tour_holds() {
    let scene = TestScene::new(BIN);
    let output = scene.expect(0, &["demo", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&output.stdout).expect("a report");
    let claims = report["claims"].as_array().expect("a list of claims");
    assert!(claims.len() >= 12, "{report:#}");
    assert!(claims.iter().all(|claim| claim["holds"] == true), "{report:#}");
    assert_eq!(report["failed"], 0);
}
