//! What the user's git does with commits that ours does not: named by `doctor` and at the start of a run.

use mainstem_core::config::{LandSigning, Settings};
use mainstem_engine::signing::signing_error_text;
use mainstem_host::git::Repo;

/// A line about the user's hooks; none if there are none.
pub(crate) fn hooks_text(repo: &Repo) -> Option<String> {
    let hooks = repo.list_user_hooks().ok().filter(|hooks| !hooks.is_empty())?;
    let (verb, noun) = if hooks.len() == 1 { ("does", "hook") } else { ("do", "hooks") };
    let names = hooks.join(", ");
    Some(format!(
        "your git {noun} {names} {verb} not run when work lands; only [gates] verify does"
    ))
}

/// Whether landings are signed, in words; none if nobody wants that. The error says why they are not.
pub(crate) fn signing_text(repo: &Repo, settings: &Settings) -> Option<Result<String, String>> {
    let wanted = match settings.land.sign {
        LandSigning::Off => {
            return repo
                .wants_signatures()
                .ok()
                .filter(|wanted| *wanted)
                .map(|_| Ok("landed commits are not signed (land.sign = \"off\")".to_owned()));
        }
        LandSigning::Required => true,
        LandSigning::Auto => repo.wants_signatures().unwrap_or(false),
    };
    wanted.then(|| match repo.check_signing() {
        Ok(()) => Ok("landed commits are signed".to_owned()),
        Err(error) => Err(signing_error_text(&error)),
    })
}
