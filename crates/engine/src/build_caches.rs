//! Caches of build tools inside the sandbox. What the user's own builds read is read-only there: whoever can write
//! `~/.cargo/registry` decides what the user compiles next. So every attempt, and every verification of the train, has
//! caches of its own, which the tools are pointed at by their variables. They begin with links to what the user has
//! already downloaded, so that a build that worked offline still does, and are thrown away with the attempt: nothing
//! that one agent downloaded is ever read by another one, by a gate of the train, or by the user.
//!
//! Knows where each tool keeps what, and nothing of sandboxes.

mod cargo;
mod link_mirror;
mod npm;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use link_mirror::{link_entries, mirror_folder};

/// How deep below the workspace the files of a build tool are looked for.
const DEPTH: usize = 3;
/// How many entries are looked at for them.
const ENTRIES_MAX: usize = 5_000;

/// Where the user's caches are, by the environment that we were started with.
#[derive(Debug)]
pub struct BuildCaches<'a> {
    pub env: &'a BTreeMap<String, String>,
    /// Where the tools will run.
    pub workspace: &'a Path,
    /// The folder for the caches of one attempt or verification.
    pub own: &'a Path,
}

impl BuildCaches<'_> {
    /// Makes the folder, unless it is there: then whoever it belongs to may have worked in it, and nothing is
    /// written there any more. Gives the variables that lead tools to it.
    pub fn prepare(&self) -> io::Result<BTreeMap<String, String>> {
        let Some(home) = self.env.get("HOME").map(PathBuf::from).filter(|home| home.is_absolute())
        else {
            return Ok(BTreeMap::new());
        };
        let found = detect_build_tools(self.workspace);
        if !self.own.exists() {
            let name = self.own.file_name().unwrap_or_default().to_string_lossy();
            let draft = self.own.with_file_name(format!("{name}.draft"));
            mainstem_host::files::remove_all(&draft)?;
            fs::create_dir_all(&draft)?;
            self.fill_caches(&home, &draft, &found)?;
            fs::rename(&draft, self.own)?;
        }
        Ok(self.cache_variables(&home, &found))
    }

    fn fill_caches(
        &self,
        home: &Path,
        draft: &Path,
        found: &BTreeSet<BuildTool>,
    ) -> io::Result<()> {
        if found.contains(&BuildTool::Cargo) {
            let theirs = self.user_cache_dir("CARGO_HOME", home.join(".cargo"));
            cargo::fill_cargo_home(&theirs, &draft.join("cargo"), self.workspace)?;
        }
        if found.contains(&BuildTool::Node) {
            npm::fill_npm_cache(&self.npm_cache_dir(home), &draft.join("npm"), self.workspace)?;
        }
        if found.contains(&BuildTool::Python) {
            let theirs = self.user_cache_dir("UV_CACHE_DIR", self.xdg_cache_dir(home).join("uv"));
            mirror_folder(&theirs, &draft.join("uv"), &|path| {
                let parent = path.parent().and_then(Path::file_name).unwrap_or_default();
                // Unpacked wheels are used as a whole.
                parent.to_string_lossy().starts_with("archive-v")
            })?;
        }
        if found.contains(&BuildTool::Gradle) {
            let theirs = self.user_cache_dir("GRADLE_USER_HOME", home.join(".gradle"));
            let own = draft.join("gradle");
            fs::create_dir_all(&own)?;
            link_entries(&theirs, &own, &|name| ["gradle.properties", "init.d"].contains(&name))?;
            mirror_folder(&theirs.join("wrapper"), &own.join("wrapper"), &|path| {
                // `wrapper/dists/NAME/HASH/…`: what is unpacked there is used as a whole.
                path.strip_prefix(&theirs).is_ok_and(|rest| rest.components().count() > 4)
            })?;
        }
        let xdg = draft.join("xdg");
        fs::create_dir_all(&xdg)?;
        link_entries(&self.xdg_cache_dir(home), &xdg, &|name| {
            !["pip", "uv", "go-build"].contains(&name)
        })
    }

    fn cache_variables(
        &self,
        home: &Path,
        found: &BTreeSet<BuildTool>,
    ) -> BTreeMap<String, String> {
        let mut set = BTreeMap::new();
        let mut point = |name: &str, folder: &str| {
            set.insert(name.to_owned(), self.own.join(folder).to_string_lossy().into_owned());
        };
        for (name, folder) in [
            ("XDG_CACHE_HOME", "xdg"),
            ("npm_config_cache", "npm"),
            // Coverage tools for Node put their shims into the home folder otherwise.
            ("SPAWN_WRAP_SHIM_ROOT", "spawn-wrap"),
            ("PIP_CACHE_DIR", "pip"),
            ("UV_CACHE_DIR", "uv"),
            ("GOMODCACHE", "go-mod"),
            ("GOCACHE", "go-build"),
        ] {
            point(name, folder);
        }
        if found.contains(&BuildTool::Cargo) {
            point("CARGO_HOME", "cargo");
        }
        if found.contains(&BuildTool::Gradle) {
            point("GRADLE_USER_HOME", "gradle");
        }
        if self.workspace.join("pnpm-lock.yaml").exists() {
            point("npm_config_store_dir", "pnpm");
        }
        if self.workspace.join("yarn.lock").exists() {
            point("YARN_GLOBAL_FOLDER", "yarn");
            if !self.workspace.join(".yarnrc.yml").exists() {
                point("YARN_CACHE_FOLDER", "yarn-v1");
            }
        }
        if found.contains(&BuildTool::Node) {
            point("BUN_INSTALL_CACHE_DIR", "bun");
        }
        self.add_layered_caches(home, found, &mut set);
        set
    }

    /// Tools that can be told of a second cache, which they only read.
    fn add_layered_caches(
        &self,
        home: &Path,
        found: &BTreeSet<BuildTool>,
        set: &mut BTreeMap<String, String>,
    ) {
        if found.contains(&BuildTool::Go) {
            let gopath = self.user_cache_dir("GOPATH", home.join("go"));
            let theirs =
                self.user_cache_dir("GOMODCACHE", gopath.join("pkg/mod")).join("cache/download");
            if theirs.is_dir() {
                // It has the layout of a proxy, and what comes from there is checked by go.sum.
                let usual = self.go_proxy_list(home);
                set.insert("GOPROXY".to_owned(), format!("file://{},{usual}", theirs.display()));
            }
        }
        if found.contains(&BuildTool::Maven) {
            let own = self.own.join("m2");
            let theirs = home.join(".m2/repository");
            set.insert(
                "MAVEN_ARGS".to_owned(),
                format!(
                    "-Dmaven.repo.local={} -Dmaven.repo.local.tail={}",
                    own.display(),
                    theirs.display()
                ),
            );
        }
        if found.contains(&BuildTool::Gradle) {
            let theirs =
                self.user_cache_dir("GRADLE_USER_HOME", home.join(".gradle")).join("caches");
            if theirs.join("modules-2").is_dir() {
                let theirs = theirs.to_string_lossy().into_owned();
                set.insert("GRADLE_RO_DEP_CACHE".to_owned(), theirs);
            }
        }
    }

    /// A folder of the user's: where a variable says, or where it usually is.
    fn user_cache_dir(&self, name: &str, usual: PathBuf) -> PathBuf {
        self.env.get(name).map(PathBuf::from).filter(|path| path.is_absolute()).unwrap_or(usual)
    }

    fn xdg_cache_dir(&self, home: &Path) -> PathBuf {
        self.user_cache_dir("XDG_CACHE_HOME", home.join(".cache"))
    }

    fn npm_cache_dir(&self, home: &Path) -> PathBuf {
        let named = self.user_cache_dir("NPM_CONFIG_CACHE", home.join(".npm"));
        self.user_cache_dir("npm_config_cache", named)
    }

    /// Where the user's go asks for modules.
    fn go_proxy_list(&self, home: &Path) -> String {
        let said = self.env.get("GOPROXY").filter(|text| !text.is_empty()).cloned();
        let config = self.user_cache_dir("XDG_CONFIG_HOME", home.join(".config")).join("go/env");
        let written = || {
            let text = fs::read_to_string(&config).ok()?;
            text.lines().find_map(|line| line.strip_prefix("GOPROXY=").map(str::to_owned))
        };
        said.or_else(written).unwrap_or_else(|| "https://proxy.golang.org,direct".to_owned())
    }
}

/// What a workspace is built with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum BuildTool {
    Cargo,
    Node,
    Python,
    Go,
    Maven,
    Gradle,
}

fn build_tool_of_file(name: &str) -> Option<BuildTool> {
    Some(match name {
        "Cargo.toml" => BuildTool::Cargo,
        "package.json" => BuildTool::Node,
        "pyproject.toml" | "requirements.txt" | "setup.py" | "uv.lock" => BuildTool::Python,
        "go.mod" => BuildTool::Go,
        "pom.xml" => BuildTool::Maven,
        "build.gradle" | "build.gradle.kts" | "settings.gradle" | "settings.gradle.kts" => {
            BuildTool::Gradle
        }
        _ => return None,
    })
}

/// The build tools whose files are in a workspace, not far down.
fn detect_build_tools(workspace: &Path) -> BTreeSet<BuildTool> {
    let mut found = BTreeSet::new();
    let (mut folders, mut looks) = (vec![(workspace.to_path_buf(), 0)], 0);
    while let Some((folder, depth)) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            looks += 1;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            found.extend(build_tool_of_file(&name));
            let skipped = name.starts_with('.')
                || ["node_modules", "target", "vendor", "venv"].contains(&&*name);
            // Links are not followed.
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            if is_folder && depth < DEPTH && !skipped && looks < ENTRIES_MAX {
                folders.push((entry.path(), depth + 1));
            }
        }
    }
    found
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn tools_are_pointed_at_caches_of_their_own_and_told_of_the_users() {
        let dir = tempfile::tempdir().unwrap();
        let (home, work) = (dir.path().join("home"), dir.path().join("work"));
        for folder in ["go/pkg/mod/cache/download", ".gradle/caches/modules-2", ".cache/other"] {
            fs::create_dir_all(home.join(folder)).unwrap();
        }
        fs::create_dir_all(work.join("a/b")).unwrap();
        for file in ["go.mod", "a/pom.xml", "a/b/build.gradle"] {
            fs::write(work.join(file), "").unwrap();
        }
        let env = BTreeMap::from([("HOME".to_owned(), home.display().to_string())]);
        let own = dir.path().join("own");
        let caches = BuildCaches { env: &env, workspace: &work, own: &own };
        let set = caches.prepare().unwrap();
        assert_eq!(set["GOMODCACHE"], own.join("go-mod").display().to_string());
        let proxy = format!("file://{}/go/pkg/mod/cache/download,", home.display());
        assert!(set["GOPROXY"].starts_with(&proxy), "{set:?}");
        assert!(set["MAVEN_ARGS"].contains(&format!("tail={}/.m2/repository", home.display())));
        assert_eq!(set["GRADLE_RO_DEP_CACHE"], home.join(".gradle/caches").display().to_string());
        assert!(!set.contains_key("CARGO_HOME"), "there is no crate here");
        assert_eq!(fs::read_link(own.join("xdg/other")).unwrap(), home.join(".cache/other"));
        // What an agent may have changed is not written to again.
        fs::remove_file(own.join("xdg/other")).unwrap();
        assert_eq!(caches.prepare().unwrap(), set);
        assert!(!own.join("xdg/other").exists());
    }
}
