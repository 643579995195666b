//! Where a round is played: a repository with plan and settings in one folder, and everything the
//! product must not reach (ledger, scripts, outputs, home) in another, so that the first may lie on
//! a disk that fails.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::event_log;
use crate::scenario::ChaosScenario;

/// The programs of a round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChaosPrograms {
    pub mainstem: PathBuf,
    pub agent: PathBuf,
    pub oracle: PathBuf,
}

impl ChaosPrograms {
    /// All of them from one folder of a build.
    pub fn beside(program: &Path) -> Option<Self> {
        let folder = program.parent()?;
        let tools = Self {
            mainstem: folder.join("mainstem"),
            agent: folder.join("chaos-agent"),
            oracle: folder.join("mainstem-oracle"),
        };
        [&tools.mainstem, &tools.agent, &tools.oracle]
            .iter()
            .all(|path| path.exists())
            .then_some(tools)
    }
}

/// A set stage. Written to `stage.json` in the outside folder, which is all the oracle needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChaosFixture {
    /// The repository; workspaces come beside it.
    pub repo: PathBuf,
    /// What the product must not reach.
    pub outside: PathBuf,
    pub tools: ChaosPrograms,
    /// Tasks that must have landed at rest.
    pub must_land: Vec<String>,
    /// Whether agents or supervisors were killed, so that output may be missing.
    pub output_lost: bool,
    /// Whether the checkout may differ from its branch: somebody moved the branch under it.
    pub moved_under: bool,
    /// Whether tasks that never began may rest as they are: one failure stops the others.
    pub may_wait: bool,
    /// Lock files that were put there by hand, as by somebody else's git.
    pub foreign_locks: Vec<PathBuf>,
    /// Facts were cut off the journal, so that agents may have worked on the same attempt twice.
    #[serde(default)]
    pub journal_cut: bool,
    /// Tasks whose landing the user took back.
    #[serde(default)]
    pub undone: Vec<String>,
    /// What the environment asks of each life, from the first on.
    #[serde(default)]
    pub wishes: Vec<FixtureVariables>,
    /// The moment at which the power went, if it did.
    #[serde(default)]
    pub power_cut: Option<PowerCut>,
    /// Workspaces are clones: what an agent commits is in its folder and nowhere else until it is kept.
    #[serde(default)]
    pub clones: bool,
    /// Landings are pushed to a remote.
    #[serde(default)]
    pub pushed: bool,
    /// The branch here may rest behind the remote's: somebody committed to it, or left a lock.
    #[serde(default)]
    pub apart: bool,
    /// The run lands on a branch of its own.
    #[serde(default)]
    pub own_branch: bool,
    /// The user had that branch brought over to `main`.
    #[serde(default)]
    pub brought_over: bool,
}

/// What was true when the power went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerCut {
    /// How long the ledger was.
    pub lines: usize,
    /// The lines that the product had printed by then, as they were: what a user had been told.
    pub told: Vec<String>,
}

/// Variables for one life of the product.
pub type FixtureVariables = Vec<(String, String)>;

impl ChaosFixture {
    /// Sets the stage: `place` and `outside` are folders that exist.
    pub fn set(
        place: &Path,
        outside: &Path,
        tools: &ChaosPrograms,
        show: &ChaosScenario,
    ) -> Result<Self, String> {
        let place = place.canonicalize().map_err(|error| error.to_string())?;
        let outside = outside.canonicalize().map_err(|error| error.to_string())?;
        let stage = Self {
            repo: place.join("repo"),
            outside,
            tools: tools.clone(),
            must_land: show.must_land(),
            output_lost: false,
            moved_under: false,
            may_wait: show.settings.on_failure != "continue",
            foreign_locks: Vec::new(),
            journal_cut: false,
            undone: Vec::new(),
            wishes: Vec::new(),
            power_cut: None,
            clones: show.settings.workspace == "clone",
            pushed: show.settings.push,
            apart: false,
            own_branch: show.settings.own_branch,
            brought_over: false,
        };
        let scripts = stage.outside.join("scripts");
        for folder in
            [&stage.repo, &scripts, &stage.outside.join("home/config"), &stage.outside.join("out")]
        {
            fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        }
        event_log::begin(&stage.outside).map_err(|error| error.to_string())?;
        let identity = "[user]\n\tname = Test\n\temail = test@example.invalid\n[init]\n\tdefaultBranch = main\n";
        write(&stage.outside.join("home/.gitconfig"), identity)?;
        for script in &show.scripts {
            let text = serde_json::to_string(script).map_err(|error| error.to_string())?;
            write(&scripts.join(format!("{}.json", script.task)), &text)?;
        }
        stage.git(&["init", "-q"])?;
        write(&stage.repo.join("shared.txt"), "")?;
        write(&stage.repo.join("user.txt"), "the user's\n")?;
        write(&stage.repo.join("plan.toml"), &show.plan())?;
        let (agent, outside) =
            (tools.agent.display().to_string(), stage.outside.display().to_string());
        write(&stage.repo.join("mainstem.toml"), &show.settings.config(&agent, &outside))?;
        stage.git(&["add", "-A"])?;
        stage.git(&["commit", "-q", "-m", "a plan"])?;
        if stage.pushed {
            let remote = stage.remote().display().to_string();
            stage.git(&["init", "-q", "--bare", &remote])?;
            stage.git(&["remote", "add", "origin", &remote])?;
            stage.git(&["push", "-q", "origin", "main"])?;
        }
        stage.save()?;
        Ok(stage)
    }

    /// Writes down what the oracle must know.
    pub fn save(&self) -> Result<(), String> {
        let text = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        write(&self.outside.join("stage.json"), &text)
    }

    /// Reads a stage that was set before.
    pub fn load(outside: &Path) -> Result<Self, String> {
        let path = outside.join("stage.json");
        let text =
            fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// The folder around repository and workspaces.
    pub fn place(&self) -> &Path {
        self.repo.parent().unwrap_or(&self.repo)
    }

    /// The remote's repository, on a machine of its own as far as the product knows.
    pub fn remote(&self) -> PathBuf {
        self.outside.join("remote.git")
    }

    /// A program in the repository, with an environment of its own and no input.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        let home = self.outside.join("home");
        command
            .current_dir(&self.repo)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into()))
            .env("HOME", &home)
            .env("XDG_CONFIG_HOME", home.join("config"))
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("LANG", "C.UTF-8")
            .env("TERM", "dumb")
            .env("NO_COLOR", "1")
            .stdin(Stdio::null());
        command
    }

    /// Runs git as the user would; what it printed, or what it complained about.
    pub fn git(&self, args: &[&str]) -> Result<String, String> {
        let output = self
            .command(Path::new("git"))
            .args(args)
            .output()
            .map_err(|error| format!("git: {error}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("git {}: {}", args.join(" "), said.trim()));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim_end_matches('\n').to_owned())
    }

    /// The same in another repository.
    pub fn git_in(&self, git_dir: &Path, args: &[&str]) -> Result<String, String> {
        let git_dir = git_dir.display().to_string();
        self.git(&[&["--git-dir", git_dir.as_str()], args].concat())
    }

    /// Runs the product to its end: exit code (128 + signal), standard output, standard error.
    pub fn mainstem(&self, args: &[&str]) -> Result<(i32, String, String), String> {
        self.mainstem_with(args, &[])
    }

    /// The same with more in its environment.
    pub fn mainstem_with(
        &self,
        args: &[&str],
        env: &[(String, String)],
    ) -> Result<(i32, String, String), String> {
        let output = self
            .command(&self.tools.mainstem)
            .args(args)
            .envs(env.iter().map(|(name, value)| (name, value)))
            .output()
            .map_err(|error| format!("mainstem: {error}"))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok((code(output.status), text(&output.stdout), text(&output.stderr)))
    }

    /// Starts the product, its output going to files named after this life.
    pub fn spawn(
        &self,
        args: &[&str],
        life: usize,
        env: &[(String, String)],
    ) -> Result<Child, String> {
        let file = |what: &str| {
            let path = self.outside.join(format!("out/{life}.{what}"));
            File::create(&path).map_err(|error| format!("{}: {error}", path.display()))
        };
        self.command(&self.tools.mainstem)
            .args(args)
            .envs(env.iter().map(|(name, value)| (name, value)))
            .envs(self.wishes.get(life).into_iter().flatten().map(|(name, value)| (name, value)))
            .stdout(file("stdout")?)
            .stderr(file("stderr")?)
            .spawn()
            .map_err(|error| format!("mainstem: {error}"))
    }

    /// What a life said on standard error.
    pub fn stderr_of(&self, life: usize) -> String {
        let path = self.outside.join(format!("out/{life}.stderr"));
        String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
    }
}

/// Exit code; 128 plus the signal if one ended it.
pub fn code(status: std::process::ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt as _;
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
