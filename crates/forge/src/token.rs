//! Who we are to a forge. Where the words come from is the caller's business.

use std::fmt;

/// A secret that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct ForgeToken(String);

impl ForgeToken {
    /// Trims it; empty is none.
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        (!text.is_empty()).then(|| Self(text.to_owned()))
    }

    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ForgeToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// `GH_TOKEN`, then `GITHUB_TOKEN`, then what `gh auth token` says.
pub fn find_token(
    variable: impl Fn(&str) -> Option<String>,
    gh: impl FnOnce() -> Option<String>,
) -> Option<ForgeToken> {
    let named = ["GH_TOKEN", "GITHUB_TOKEN"].into_iter().filter_map(variable);
    let mut named = named.filter_map(|text| ForgeToken::new(&text));
    named.next().or_else(|| ForgeToken::new(&gh()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_place_that_has_one_is_asked() {
        let nothing = |_: &str| None;
        let only = |wanted: &'static str| {
            move |name: &str| (name == wanted).then(|| format!("{wanted}-value\n"))
        };
        let reveal = |token: Option<ForgeToken>| token.map(|token| token.reveal().to_owned());
        let gh = || Some("from gh\n".to_owned());
        assert_eq!(reveal(find_token(only("GH_TOKEN"), gh)).as_deref(), Some("GH_TOKEN-value"));
        assert_eq!(
            reveal(find_token(only("GITHUB_TOKEN"), gh)).as_deref(),
            Some("GITHUB_TOKEN-value")
        );
        assert_eq!(reveal(find_token(nothing, gh)).as_deref(), Some("from gh"));
        assert_eq!(find_token(|_| Some(" ".to_owned()), || None), None);
        assert_eq!(format!("{:?}", ForgeToken::new("secret")), "Some(Token(…))");
    }
}
