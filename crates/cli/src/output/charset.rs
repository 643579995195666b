//! Signs and lines for terminals that show no more than ASCII: `LC_ALL=C`, `TERM=dumb`. What users and agents
//! wrote is left as it is; only what we put around it changes.

use std::borrow::Cow;
use std::io::IsTerminal;
use std::sync::OnceLock;

/// What stands for each of our signs.
const PLAIN: &[(char, &str)] = &[
    ('●', "*"),
    ('○', "o"),
    ('◌', "o"),
    ('◆', "#"),
    ('▸', ">"),
    ('✓', "+"),
    ('✗', "x"),
    ('⚡', "!"),
    ('–', "-"),
    ('⊘', "/"),
    ('»', ">"),
    ('↻', "~"),
    ('↶', "<"),
    ('‖', "="),
    ('⏸', "="),
    ('▶', ">"),
    ('⇡', "^"),
    ('·', "-"),
    ('→', "->"),
    ('…', "..."),
    ('−', "-"),
    ('─', "-"),
    ('│', "|"),
    ('└', "`"),
    ('├', "|"),
];

/// The text as this terminal can show it.
pub(crate) fn adapt_to_terminal(text: &str) -> Cow<'_, str> {
    static ASCII: OnceLock<bool> = OnceLock::new();
    if *ASCII.get_or_init(is_ascii_terminal) {
        Cow::Owned(to_ascii(text))
    } else {
        Cow::Borrowed(text)
    }
}

fn is_ascii_terminal() -> bool {
    let set = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
    let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG"));
    let dumb = set("TERM").is_some_and(|term| term == "dumb")
        && (std::io::stdout().is_terminal() || std::io::stderr().is_terminal());
    dumb || locale.is_some_and(|locale| locale == "C" || locale == "POSIX")
}

fn to_ascii(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match PLAIN.iter().find(|(sign, _)| *sign == c) {
            Some((_, plain)) => out.push_str(plain),
            None => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sign_of_a_phase_has_a_plain_form() {
        for phase in mainstem_core::phase::PHASES {
            assert!(to_ascii(super::super::phase_sign(phase)).is_ascii(), "{}", phase.as_str());
        }
        assert_eq!(to_ascii("✓ a → b · naïve…"), "+ a -> b - naïve...");
    }
}
