//! The forge that a run's pull requests go to: found from the settings, the remote's address and a
//! token, before anything starts.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use mainstem_agents::prompt::TemplateError;
use mainstem_core::config::Settings;
use mainstem_core::id::Oid;
use mainstem_forge::token::{self, Token};
use mainstem_forge::{Forge, GitHub, Http, Place};
use mainstem_host::git::{GitError, Remote, Repo};
use mainstem_host::process;

use crate::accepted;
use crate::pull_text::PullText;

/// `gh` asks nobody and answers at once.
const GH_WITHIN: Duration = Duration::from_secs(10);

/// Why there is no forge to go to.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// Git said no.
    #[error(transparent)]
    Git(#[from] GitError),
    /// There is no such remote.
    #[error("unknown git remote `{0}` (land.remote)")]
    NoRemote(String),
    /// Its address names no repository on a forge.
    #[error("the URL of the remote `{remote}` ({url}) is not a repository on a forge")]
    NotOnForge {
        /// The remote.
        remote: String,
        /// Its address.
        url: String,
    },
    /// The setting is no repository.
    #[error("land.repository is \"{0}\", which is not of the form owner/name")]
    BadName(String),
    /// Nobody said who we are.
    #[error("no token for {0}")]
    NoToken(String),
    /// The remote does not have the target branch.
    #[error("the remote `{remote}` has no branch {branch}")]
    NoTarget {
        /// The remote.
        remote: String,
        /// The branch.
        branch: String,
    },
    /// The template of pull requests cannot be read.
    #[error("cannot read the template {path} (land.template): {source}")]
    Unread {
        /// Where it should be.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// It has a mistake.
    #[error("invalid pull request template (land.template): {0}")]
    Template(#[from] TemplateError),
}

impl HubError {
    /// What helps.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Git(_) | Self::Unread { .. } | Self::Template(_) => return None,
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
pub struct Hub {
    /// The forge.
    pub forge: Box<dyn Forge>,
    /// Where branches are pushed to.
    pub remote: Remote,
    /// How pull requests are worded.
    pub text: PullText,
    /// The branch there that work lands on.
    pub base: String,
}

impl fmt::Debug for Hub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hub({} by {:?})", self.forge.host(), self.remote)
    }
}

impl Hub {
    /// The forge that the settings and the remote name. Nothing is asked of it yet.
    pub fn connect(
        repo: &Repo,
        settings: &Settings,
        env: &[(String, String)],
    ) -> Result<Self, HubError> {
        let base = match &settings.land.branch {
            Some(branch) => branch.clone(),
            None => repo.default_branch()?,
        };
        let pulls = &settings.land.pulls;
        let url = repo.remote_url(&pulls.remote)?;
        let url = url.ok_or_else(|| HubError::NoRemote(pulls.remote.clone()))?;
        let place = place(settings, &url)?;
        let token = token_for(&place, env)?;
        let https = url.starts_with("https://");
        let remote = Remote::new(&pulls.remote);
        let remote = if https { remote.with_token(&place.host, token.reveal()) } else { remote };
        let forge = github(&place, settings, token);
        Ok(Self { forge: Box::new(forge), remote, text: text(repo, settings)?, base })
    }

    /// Only the forge, for questions: there need be no remote if the repository is named.
    pub fn asking(
        repo: &Repo,
        settings: &Settings,
        env: &[(String, String)],
    ) -> Result<Box<dyn Forge>, HubError> {
        let pulls = &settings.land.pulls;
        let url = repo.remote_url(&pulls.remote)?.unwrap_or_default();
        let mut place = place(settings, &url)?;
        if Place::of_url(&url).is_none() && pulls.api.is_none() {
            place.host = "github.com".to_owned();
        }
        let token = token_for(&place, env)?;
        Ok(Box::new(github(&place, settings, token)))
    }

    /// Brings the target branch's commits here; where it stands.
    pub fn fetch_target(&self, repo: &Repo) -> Result<Oid, HubError> {
        let found = repo.fetch_branch(&self.remote, &self.base, &upstream_ref(&self.base))?;
        found.ok_or_else(|| HubError::NoTarget {
            remote: self.remote.name().to_owned(),
            branch: self.base.clone(),
        })
    }

    /// Makes the branch on which a phase's tasks land before they are offered together, if it is not
    /// there.
    pub fn make_line(&self, repo: &Repo, at: &Oid) -> Result<(), HubError> {
        let line = format!("refs/heads/{}", line_of(&self.base));
        if repo.read_ref(&line)?.is_none() {
            // Somebody else may have made it meanwhile, and that is just as well.
            let _ = repo.update_ref(&line, at, None, "mainstem: a line for phases")?;
        }
        Ok(())
    }
}

/// The branch on which the tasks of a phase land, here, until the forge merges them.
pub fn line_of(base: &str) -> String {
    format!("phases/{base}")
}

/// Where the target branch of the forge is kept here.
pub fn upstream_ref(target: &str) -> String {
    format!("refs/mainstem/upstream/{target}")
}

fn place(settings: &Settings, url: &str) -> Result<Place, HubError> {
    let pulls = &settings.land.pulls;
    let of_url = Place::of_url(url);
    match (&pulls.repository, of_url) {
        (Some(name), of_url) => {
            let host = of_url.map_or_else(|| "the forge".to_owned(), |place| place.host);
            Place::of_path(&host, name).ok_or_else(|| HubError::BadName(name.clone()))
        }
        (None, Some(place)) => Ok(place),
        (None, None) => {
            let (remote, url) = (pulls.remote.clone(), url.to_owned());
            Err(HubError::NotOnForge { remote, url })
        }
    }
}

fn github(place: &Place, settings: &Settings, token: Token) -> GitHub {
    let pause = |time: Duration| {
        process::pause_ms(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        true
    };
    let api = settings.land.pulls.api.as_deref();
    GitHub::new(place, api, token, Box::new(Http::new()), Box::new(pause))
}

fn token_for(place: &Place, env: &[(String, String)]) -> Result<Token, HubError> {
    let variable =
        |name: &str| env.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone());
    let gh = || {
        let args = ["auth", "token", "--hostname", place.host.as_str()];
        process::inquire("gh", &args, GH_WITHIN)
    };
    token::find(variable, gh).ok_or_else(|| HubError::NoToken(place.host.clone()))
}

fn text(repo: &Repo, settings: &Settings) -> Result<PullText, HubError> {
    let Some(named) = &settings.land.pulls.template else { return Ok(PullText::default()) };
    let path = repo.dir().join(named);
    let (plain, state) = (named.trim_start_matches("./"), repo.common_dir().join("mainstem"));
    let text = accepted::read_in_force(repo, &state, plain).map_err(std::io::Error::other);
    match text.and_then(|text| text.ok_or_else(|| std::io::ErrorKind::NotFound.into())) {
        Ok(text) => Ok(PullText::new(&text)?),
        Err(source) => Err(HubError::Unread { path, source }),
    }
}
