//! What every effect may look at: the repository, the places, the settings. Never changes during an
//! engine's life, but for the note of what this life has made.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use mainstem_agents::environment::is_denied_variable;
use mainstem_agents::{PromptTemplate, SecretRedactor, allowed_environment};
use mainstem_core::config::{self, LandMode, Settings};
use mainstem_core::id::{Oid, RunId, TaskId, TaskIx};
use mainstem_host::git::{GitError, PreparedWorktree, Repo};
use mainstem_host::process::{self, JobSpec};

use crate::build_caches::BuildCaches;
use crate::forge_connection::{ForgeConnection, forge_target_ref};
use crate::lessons::LessonStore;
use crate::repo_layout::RepoLayout;
use crate::sandbox_policy::{EngineSandbox, SandboxScope, TMPDIR};
use crate::signing::LandingSigner;
use crate::trash::TrashEmptier;
use crate::upstream::UpstreamBranch;

/// Longest line of output kept in one piece.
const LINE_BYTES: usize = 1024 * 1024;

/// The surroundings of one engine.
#[derive(Debug)]
pub struct EngineContext {
    pub repo: Repo,
    pub layout: RepoLayout,
    /// The settings in force.
    pub settings: Settings,
    pub run: RunId,
    pub target: String,
    pub exe: PathBuf,
    /// The environment that we were started with.
    pub env: Vec<(String, String)>,
    /// How prompts are put together.
    pub template: PromptTemplate,
    /// The lines of `.worktreeinclude` when this life began.
    pub include: Vec<String>,
    /// Where lessons are; none if nobody wants any.
    pub lessons: Option<LessonStore>,
    /// The walls around what we start; none if the settings say so.
    pub sandbox: Option<EngineSandbox>,
    /// Workspaces that this life of the engine has made.
    pub created_workspaces: CreatedWorkspaces,
    /// The forge, where work lands by pull requests.
    pub forge_connection: Option<ForgeConnection>,
    /// Where landings are pushed to.
    pub upstream: Option<UpstreamBranch>,
    /// Who makes the commits of landings.
    pub signer: LandingSigner,
    /// Who empties the trash; none where nothing is thrown away.
    pub trash: Option<TrashEmptier>,
    /// Tasks that the target branch has and the journal does not know as landed.
    pub unjournaled_landings: BTreeSet<TaskId>,
}

/// Attempts whose workspace this life of the engine has made with its own hands. An earlier life's may
/// have been lost in part with the power before an agent ever saw it.
#[derive(Debug, Default)]
pub struct CreatedWorkspaces(Mutex<BTreeSet<(TaskIx, u32)>>);

impl CreatedWorkspaces {
    pub fn insert(&self, task: TaskIx, attempt: u32) {
        if let Ok(mut made) = self.0.lock() {
            made.insert((task, attempt));
        }
    }

    /// Whether it was noted.
    pub fn contains(&self, task: TaskIx, attempt: u32) -> bool {
        self.0.lock().is_ok_and(|made| made.contains(&(task, attempt)))
    }
}

impl EngineContext {
    /// For planner calls, which have no target and no workspaces; `run` names their draft.
    pub fn for_planning(
        repo: Repo,
        layout: RepoLayout,
        settings: Settings,
        run: RunId,
        (exe, env): (PathBuf, Vec<(String, String)>),
        sandbox: Option<EngineSandbox>,
    ) -> Self {
        let (target, template) = (String::new(), PromptTemplate::default());
        let (lessons, created_workspaces) = (None, CreatedWorkspaces::default());
        Self {
            repo,
            layout,
            settings,
            run,
            target,
            exe,
            env,
            template,
            include: Vec::new(),
            lessons,
            sandbox,
            created_workspaces,
            forge_connection: None,
            upstream: None,
            signer: LandingSigner::default(),
            trash: None,
            unjournaled_landings: BTreeSet::new(),
        }
    }

    /// Makes room for the kernel to hold the agents and their memory, where it can.
    pub fn prepare_job_containment(&self) {
        // Where it cannot, each supervisor does it by itself; `doctor` says which.
        let _ = process::prepare_containment(self.settings.limits.memory_per_agent > 0);
    }

    /// The target branch as a ref: the forge's, as it was last fetched, where work lands there.
    pub fn target_ref(&self) -> String {
        if self.settings.land.mode == LandMode::Pr {
            return forge_target_ref(&self.target);
        }
        format!("refs/heads/{}", self.target)
    }

    /// Where work lands now; none if there is no target branch any more. What somebody else pushed and
    /// the target branch does not have counts as well.
    pub fn landing_head(&self) -> Result<Option<Oid>, GitError> {
        let Some(local) = self.repo.read_ref(&self.target_ref())? else { return Ok(None) };
        match &self.upstream {
            Some(upstream) => upstream.landing_head(&self.repo, local).map(Some),
            None => Ok(Some(local)),
        }
    }

    /// How a supervisor is started.
    pub fn supervisor_command(&self) -> Vec<OsString> {
        vec![self.exe.clone().into_os_string(), "__supervise".into()]
    }

    /// The environment for a command of ours: reduced, with what it is told on top.
    pub fn command_env(&self, extra: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        allowed_environment(self.env.iter().cloned(), &[], extra).vars
    }

    /// Variables that tell a command which attempt it runs for.
    pub fn attempt_variables(&self, task: &TaskId, attempt: u32) -> BTreeMap<String, String> {
        BTreeMap::from([
            ("MAINSTEM_RUN".to_owned(), self.run.to_string()),
            ("MAINSTEM_TASK".to_owned(), task.to_string()),
            ("MAINSTEM_ATTEMPT".to_owned(), attempt.to_string()),
        ])
    }

    /// A shell command in a folder, with a time limit.
    pub fn shell_job(
        &self,
        command: &str,
        cwd: PathBuf,
        env: BTreeMap<String, String>,
        wall_ms: u64,
    ) -> JobSpec {
        JobSpec {
            argv: vec!["/bin/sh".to_owned(), "-c".to_owned(), command.to_owned()],
            cwd,
            env,
            stdin: None,
            converse: false,
            wall_ms: (wall_ms > 0).then_some(wall_ms),
            idle_ms: None,
            grace_ms: self.settings.run.grace_ms,
            output_bytes: self.settings.limits.output_bytes,
            line_bytes: LINE_BYTES,
            keeps_work: false,
            memory_bytes: None,
            door: None,
            wall: None,
        }
    }

    /// An agent in its workspace.
    pub fn agent_job(
        &self,
        argv: Vec<String>,
        cwd: PathBuf,
        env: BTreeMap<String, String>,
    ) -> JobSpec {
        let run = &self.settings.run;
        JobSpec {
            argv,
            cwd,
            env,
            stdin: None,
            converse: false,
            wall_ms: None,
            idle_ms: (run.idle_timeout_ms > 0).then_some(run.idle_timeout_ms),
            grace_ms: run.grace_ms,
            output_bytes: self.settings.limits.output_bytes,
            line_bytes: LINE_BYTES,
            keeps_work: true,
            door: None,
            memory_bytes: Some(self.settings.limits.memory_per_agent).filter(|limit| *limit > 0),
            wall: None,
        }
    }

    /// Checks out a commit for gates or reviewers to look at.
    pub fn check_out_lane(&self, lane: &Path, commit: &Oid) -> Result<PreparedWorktree, GitError> {
        let made = self.repo.prepare_detached_worktree(lane, commit, &self.layout.trash_dir())?;
        if let Some(walls) = &self.sandbox
            && walls.hides_git_settings(&self.repo)?
        {
            // Without settings that it may read, no git in there would work.
            self.repo.create_agent_git_dir(lane)?;
        }
        Ok(made)
    }

    /// The same job with a temporary folder of its own, and behind a wall if there are walls.
    pub fn sandboxed_job(
        &self,
        mut spec: JobSpec,
        behind: &SandboxScope<'_>,
    ) -> Result<JobSpec, GitError> {
        if let Some(tmp) = &behind.tmp {
            std::fs::create_dir_all(tmp).map_err(|source| {
                let (what, path) = ("make the temporary folder", tmp.clone());
                GitError::Files { what, path, source }
            })?;
            let name = tmp.to_string_lossy().into_owned();
            spec.env.insert(TMPDIR.to_owned(), name.clone());
            spec.env.entry("MAINSTEM_TMP".to_owned()).or_insert(name);
        }
        if let Some(walls) = &self.sandbox {
            self.add_build_caches(&mut spec, behind)?;
            let (wall, env) = walls.build_policy(behind, &self.repo)?;
            spec.wall = Some(wall);
            spec.env.extend(env);
        }
        Ok(spec)
    }

    /// Points build tools at caches of the job's own, but for what the settings say outright.
    fn add_build_caches(
        &self,
        spec: &mut JobSpec,
        behind: &SandboxScope<'_>,
    ) -> Result<(), GitError> {
        let Some(own) = behind.caches.as_deref().filter(|_| self.settings.sandbox.write_defaults)
        else {
            return Ok(());
        };
        let env: BTreeMap<String, String> = self.env.iter().cloned().collect();
        let variables = BuildCaches { env: &env, workspace: &spec.cwd, own }.prepare();
        let variables = variables.map_err(|source| {
            let (what, path) = ("make the folder of caches", own.to_path_buf());
            GitError::Files { what, path, source }
        })?;
        for (name, value) in variables {
            let said = spec.env.get(&name);
            if said.is_none() || said == env.get(&name) {
                spec.env.insert(name, value);
            }
        }
        Ok(())
    }

    /// What must be readable to run a job's program and the tool that it drives.
    pub fn list_program_dirs(&self, spec: &JobSpec, agent: &config::AgentSettings) -> Vec<PathBuf> {
        let Some(walls) = &self.sandbox else { return Vec::new() };
        let tool = agent.binary.as_ref().unwrap_or(&agent.kind);
        let own = spec.argv.first();
        own.into_iter().chain([tool]).flat_map(|program| walls.list_program_dirs(program)).collect()
    }

    /// Values that must not land or be shown: secrets that the settings name, and credentials in git's own
    /// settings.
    pub fn list_secrets(&self) -> Vec<(String, String)> {
        let agents = || self.settings.agents.values();
        let named: BTreeSet<&String> = agents().flat_map(|agent| &agent.secrets).collect();
        let given = self.env.iter().filter(|(name, _)| named.contains(name)).cloned();
        // What the settings say outright under a secret's name is one as well.
        let set = agents()
            .flat_map(|agent| agent.env.clone())
            .filter(|(name, _)| is_denied_variable(name));
        let of_git = self.repo.cached_credentials().iter();
        let of_git = of_git.map(|found| (format!("git config {}", found.key), found.value.clone()));
        given.chain(set).chain(of_git).collect()
    }

    /// Takes known secret values out of whatever is kept or shown.
    pub fn build_redactor(&self) -> SecretRedactor {
        SecretRedactor::new(self.list_secrets())
    }
}
