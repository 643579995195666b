//! A home for a tool that takes settings from one file only: everything in it is the person's own, by
//! links, except that file, which is theirs with ours on top.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use mainstem_agents::drive::SettingsOverlay;
use serde_json::Value;

/// Makes the home, or what is missing of it.
pub(super) fn create_overlay(overlay: &SettingsOverlay) -> io::Result<()> {
    let source = Path::new(&overlay.source);
    let target = Path::new(&overlay.home).join(&overlay.folder);
    fs::create_dir_all(&target)?;
    for name in &overlay.shared {
        fs::create_dir_all(source.join(name))?;
    }
    for entry in fs::read_dir(source).into_iter().flatten() {
        let name = entry?.file_name();
        if name.to_string_lossy() == overlay.file || name.to_string_lossy().ends_with(".lock") {
            continue;
        }
        match symlink(source.join(&name), target.join(&name)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    let mut settings = match fs::read(source.join(&overlay.file)) {
        // What cannot be read as JSON the tool would not have taken either.
        Ok(bytes) => serde_json::from_slice(&bytes).unwrap_or_default(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Value::Null,
        Err(error) => return Err(error),
    };
    let ours: Value = serde_json::from_str(&overlay.settings).unwrap_or_default();
    merge_json(&mut settings, ours);
    fs::write(target.join(&overlay.file), settings.to_string())
}

fn merge_json(under: &mut Value, over: Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                merge_json(under.entry(key).or_insert(Value::Null), value);
            }
        }
        (under, over) => *under = over,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use serde_json::json;

    use super::*;

    #[test]
    fn the_persons_files_are_there_and_their_settings_have_ours_on_top() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("home/.gemini");
        fs::create_dir_all(&source).unwrap();
        fs::write(source.join("oauth_creds.json"), "secret").unwrap();
        fs::write(source.join("settings.json"), r#"{"ui":{"a":1},"privacy":{"b":2}}"#).unwrap();
        let overlay = SettingsOverlay {
            variable: "GEMINI_CLI_HOME".into(),
            home: dir.path().join("own").to_string_lossy().into_owned(),
            folder: ".gemini".into(),
            source: source.to_string_lossy().into_owned(),
            file: "settings.json".into(),
            settings: r#"{"privacy":{"c":3}}"#.into(),
            shared: vec!["tmp".into()],
        };
        // Twice, as after an attempt that was started afresh.
        create_overlay(&overlay).unwrap();
        create_overlay(&overlay).unwrap();
        let own = dir.path().join("own/.gemini");
        assert_eq!(fs::read_to_string(own.join("oauth_creds.json")).unwrap(), "secret");
        let settings: Value =
            serde_json::from_slice(&fs::read(own.join("settings.json")).unwrap()).unwrap();
        assert_eq!(settings, json!({"ui": {"a": 1}, "privacy": {"b": 2, "c": 3}}));
        fs::write(own.join("tmp/session"), "x").unwrap();
        assert!(source.join("tmp/session").exists());
    }
}
