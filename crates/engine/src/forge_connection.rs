//! The forge that a run's pull requests go to: found from the settings, the remote's address and a
//! token, before anything starts.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use mainstem_agents::prompt::PromptTemplateError;
use mainstem_core::config::Settings;
use mainstem_core::id::Oid;
use mainstem_forge::token::{self, ForgeToken};
use mainstem_forge::{Forge, ForgeHttpClient, ForgeRepository, GitHubForge};
use mainstem_host::git::{GitError, GitRemote, Repo};
use mainstem_host::process;

use crate::accepted_files;
use crate::pull_request_text::PullRequestTemplate;

/// `gh` asks nobody and answers at once.
const GH_WITHIN: Duration = Duration::from_secs(10);

/// Why there is no forge to go to.
#[derive(Debug, thiserror::Error)]
pub enum ForgeConnectionError {
    #[error(transparent)]
    Git(#[from] GitError),
    /// There is no such remote.
    #[error("unknown git remote `{0}` (land.remote)")]
    NoRemote(String),
    /// Its address names no repository on a forge.
    #[error("the URL of the remote `{remote}` ({url}) is not a repository on a forge")]
    NotOnForge { remote: String, url: String },
    /// The setting is no repository.
    #[error("land.repository is \"{0}\", which is not of the form owner/name")]
    BadName(String),
    /// Nobody said who we are.
    #[error("no token for {0}")]
    NoToken(String),
    /// The remote does not have the target branch.
    #[error("the remote `{remote}` has no branch {branch}")]
    NoTarget { remote: String, branch: String },
    /// The template of pull requests cannot be read.
    #[error("cannot read the template {path} (land.template): {source}")]
    TemplateUnreadable {
        /// Where it should be.
        path: PathBuf,
        source: std::io::Error,
    },
    /// It has a mistake.
    #[error("invalid pull request template (land.template): {0}")]
    Template(#[from] PromptTemplateError),
}

impl ForgeConnectionError {
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Git(_) | Self::TemplateUnreadable { .. } | Self::Template(_) => return None,
            Self::NoRemote(name) => format!("git remote add {name} URL, or set land.remote"),
            Self::NotOnForge { .. } => {
                "set land.repository = \"owner/name\", and land.api if the API has a different host"
                    .to_owned()
            }
            Self::BadName(_) => "for example: land.repository = \"octo/app\"".to_owned(),
            Self::NoToken(_) => "set GH_TOKEN, or log in with `gh auth login`".to_owned(),
            Self::NoTarget { remote, branch } => format!("git push {remote} {branch}"),
        })
    }
}

/// A forge, the remote beside it, and how pull requests are worded.
pub struct ForgeConnection {
    pub forge: Box<dyn Forge>,
    /// Where branches are pushed to.
    pub remote: GitRemote,
    /// How pull requests are worded.
    pub text: PullRequestTemplate,
    /// The branch there that work lands on.
    pub base: String,
}

impl fmt::Debug for ForgeConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hub({} by {:?})", self.forge.host(), self.remote)
    }
}

impl ForgeConnection {
    /// The forge that the settings and the remote name. Nothing is asked of it yet.
    pub fn connect(
        repo: &Repo,
        settings: &Settings,
        env: &[(String, String)],
    ) -> Result<Self, ForgeConnectionError> {
        let base = match &settings.land.branch {
            Some(branch) => branch.clone(),
            None => repo.default_branch()?,
        };
        let pulls = &settings.land.pulls;
        let url = repo.read_remote_url(&pulls.remote)?;
        let url = url.ok_or_else(|| ForgeConnectionError::NoRemote(pulls.remote.clone()))?;
        let place = locate_forge_repository(settings, &url)?;
        let token = find_token(&place, env)?;
        let https = url.starts_with("https://");
        let remote = GitRemote::new(&pulls.remote);
        let remote = if https { remote.with_token(&place.host, token.reveal()) } else { remote };
        let forge = build_github_forge(&place, settings, token);
        Ok(Self {
            forge: Box::new(forge),
            remote,
            text: load_pull_request_text(repo, settings)?,
            base,
        })
    }

    /// Only the forge, for questions: there need be no remote if the repository is named.
    pub fn connect_for_queries(
        repo: &Repo,
        settings: &Settings,
        env: &[(String, String)],
    ) -> Result<Box<dyn Forge>, ForgeConnectionError> {
        let pulls = &settings.land.pulls;
        let url = repo.read_remote_url(&pulls.remote)?.unwrap_or_default();
        let mut place = locate_forge_repository(settings, &url)?;
        if ForgeRepository::from_url(&url).is_none() && pulls.api.is_none() {
            place.host = "github.com".to_owned();
        }
        let token = find_token(&place, env)?;
        Ok(Box::new(build_github_forge(&place, settings, token)))
    }

    /// Brings the target branch's commits here; where it stands.
    pub fn fetch_target(&self, repo: &Repo) -> Result<Oid, ForgeConnectionError> {
        let found = repo.fetch_branch(&self.remote, &self.base, &forge_target_ref(&self.base))?;
        found.ok_or_else(|| ForgeConnectionError::NoTarget {
            remote: self.remote.name().to_owned(),
            branch: self.base.clone(),
        })
    }

    /// Makes the branch on which a phase's tasks land before they are offered together, if it is not
    /// there.
    pub fn create_phase_branch(&self, repo: &Repo, at: &Oid) -> Result<(), ForgeConnectionError> {
        let line = format!("refs/heads/{}", phase_branch_name(&self.base));
        if repo.read_ref(&line)?.is_none() {
            // Somebody else may have made it meanwhile, and that is just as well.
            let _ = repo.update_ref(&line, at, None, "mainstem: a line for phases")?;
        }
        Ok(())
    }
}

/// The branch on which the tasks of a phase land, here, until the forge merges them.
pub fn phase_branch_name(base: &str) -> String {
    format!("phases/{base}")
}

/// Where the target branch of the forge is kept here.
pub fn forge_target_ref(target: &str) -> String {
    format!("refs/mainstem/upstream/{target}")
}

fn locate_forge_repository(
    settings: &Settings,
    url: &str,
) -> Result<ForgeRepository, ForgeConnectionError> {
    let pulls = &settings.land.pulls;
    let of_url = ForgeRepository::from_url(url);
    match (&pulls.repository, of_url) {
        (Some(name), of_url) => {
            let host = of_url.map_or_else(|| "the forge".to_owned(), |place| place.host);
            ForgeRepository::from_path(&host, name)
                .ok_or_else(|| ForgeConnectionError::BadName(name.clone()))
        }
        (None, Some(place)) => Ok(place),
        (None, None) => {
            let (remote, url) = (pulls.remote.clone(), url.to_owned());
            Err(ForgeConnectionError::NotOnForge { remote, url })
        }
    }
}

fn build_github_forge(
    place: &ForgeRepository,
    settings: &Settings,
    token: ForgeToken,
) -> GitHubForge {
    let pause = |time: Duration| {
        process::sleep_ms(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        true
    };
    let api = settings.land.pulls.api.as_deref();
    GitHubForge::new(place, api, token, Box::new(ForgeHttpClient::new()), Box::new(pause))
}

fn find_token(
    place: &ForgeRepository,
    env: &[(String, String)],
) -> Result<ForgeToken, ForgeConnectionError> {
    let variable =
        |name: &str| env.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
    let gh = || {
        let args = ["auth", "token", "--hostname", place.host.as_str()];
        process::query_program("gh", &args, GH_WITHIN)
    };
    token::find_token(variable, gh).ok_or_else(|| ForgeConnectionError::NoToken(place.host.clone()))
}

fn load_pull_request_text(
    repo: &Repo,
    settings: &Settings,
) -> Result<PullRequestTemplate, ForgeConnectionError> {
    let Some(named) = &settings.land.pulls.template else {
        return Ok(PullRequestTemplate::default());
    };
    let path = repo.dir().join(named);
    let (plain, state) = (named.trim_start_matches("./"), repo.common_dir().join("mainstem"));
    let text =
        accepted_files::read_file_in_force(repo, &state, plain).map_err(std::io::Error::other);
    match text.and_then(|text| text.ok_or_else(|| std::io::ErrorKind::NotFound.into())) {
        Ok(text) => Ok(PullRequestTemplate::new(&text)?),
        Err(source) => Err(ForgeConnectionError::TemplateUnreadable { path, source }),
    }
}
