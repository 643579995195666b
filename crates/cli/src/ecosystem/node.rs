//! JavaScript and TypeScript: the package manager by its lock file, the test script by its name.

use std::path::Path;

use serde_json::Value;

use super::{EcosystemProject, InstalledPrograms, read_small_file};

/// Scripts that say something about the code, best first.
const SCRIPTS: [&str; 6] = ["test", "check", "typecheck", "type-check", "lint", "build"];
/// Without a lock file none must be made: it would be taken for the agent's work.
const NPM_INSTALL: &str = "npm install --no-package-lock --prefer-offline --no-audit --no-fund";

struct NodePackageTool {
    name: &'static str,
    install: &'static str,
    run: &'static str,
}

/// The package of a folder, if it has a script worth running.
pub(super) fn node_project(
    dir: &Path,
    machine: &InstalledPrograms<'_>,
) -> Option<EcosystemProject> {
    let package: Value = serde_json::from_str(&read_small_file(dir, "package.json")?).ok()?;
    let script = |name: &&&str| {
        let text = package["scripts"][**name].as_str().unwrap_or_default();
        !text.is_empty() && !text.contains("no test specified")
    };
    let script = SCRIPTS.iter().find(script)?;
    let manager = find_package_manager(dir, &package);
    let needs_install = ["dependencies", "devDependencies", "optionalDependencies", "workspaces"]
        .iter()
        .any(|key| match &package[*key] {
            Value::Object(map) => !map.is_empty(),
            Value::Array(list) => !list.is_empty(),
            _ => false,
        });
    let run = if *script == "test" { "test".to_owned() } else { format!("run {script}") };
    let mut setup = if needs_install { vec![manager.install.to_owned()] } else { Vec::new() };
    let mut verify = format!("{} {run}", manager.run);
    let mut note = None;
    if manager.name != "npm" && !machine.has_program(manager.name) && machine.has_program("npx") {
        // Comes from the registry each time, so that nobody has to install it first.
        setup.iter_mut().for_each(|command| *command = format!("npx --yes {command}"));
        verify = format!("npx --yes {verify}");
        note = Some(format!("{} is not installed; npx fetches it", manager.name));
    }
    Some(EcosystemProject {
        ecosystem: manager.name,
        because: "package.json".to_owned(),
        setup,
        verify: vec![verify],
        caches: Vec::new(),
        missing: Vec::new(),
        note,
    })
}

fn find_package_manager(dir: &Path, package: &Value) -> NodePackageTool {
    let has = |name: &str| dir.join(name).is_file();
    let said = package["packageManager"].as_str().unwrap_or_default();
    let said = said.split('@').next().unwrap_or_default();
    let berry = has(".yarnrc.yml");
    let pnpm = |frozen: bool| NodePackageTool {
        name: "pnpm",
        install: if frozen {
            "pnpm install --frozen-lockfile --prefer-offline"
        } else {
            "pnpm install --no-lockfile"
        },
        run: "pnpm",
    };
    let yarn = |frozen: bool| NodePackageTool {
        name: "yarn",
        install: match (berry, frozen) {
            (true, true) => "yarn install --immutable",
            (true, false) => "yarn install",
            (false, true) => "yarn install --frozen-lockfile --prefer-offline",
            (false, false) => "yarn install --no-lockfile",
        },
        run: "yarn",
    };
    let bun = |frozen: bool| NodePackageTool {
        name: "bun",
        install: if frozen { "bun install --frozen-lockfile" } else { "bun install --no-save" },
        run: "bun run",
    };
    if has("pnpm-lock.yaml") {
        pnpm(true)
    } else if has("yarn.lock") {
        yarn(true)
    } else if has("bun.lock") || has("bun.lockb") {
        bun(true)
    } else if has("package-lock.json") || has("npm-shrinkwrap.json") {
        NodePackageTool {
            name: "npm",
            install: "npm ci --prefer-offline --no-audit --no-fund",
            run: "npm",
        }
    } else {
        match said {
            "pnpm" => pnpm(false),
            "yarn" => yarn(false),
            "bun" => bun(false),
            _ => NodePackageTool { name: "npm", install: NPM_INSTALL, run: "npm" },
        }
    }
}
