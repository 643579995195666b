//! Finds what looks like a secret in lines that are about to land, by shape and by known value.
//!
//! Only shapes that are hardly ever anything else: a scan that cries wolf is switched off. Never repeats
//! what it found. Knows lines, not files: where they come from and what a find means is decided elsewhere.

/// One find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leak {
    /// The rule's name.
    pub rule: &'static str,
}

/// In a line, for the eye of the scan: look away.
pub const ALLOW_MARK: &str = "mainstem:allow-secret";

/// Letters that may follow a rule's start.
#[derive(Clone, Copy)]
enum Letters {
    /// `A-Z 0-9`
    Upper,
    /// `A-Z a-z 0-9`
    Alnum,
    /// The same with `_ -`
    Token,
    /// The same with `_ - .`
    Dotted,
    /// `0-9 a-f`
    Hex,
    /// Base64
    Base64,
}

struct Rule {
    name: &'static str,
    starts: &'static [&'static str],
    letters: Letters,
    least: usize,
    most: usize,
}

const fn rule(
    name: &'static str,
    starts: &'static [&'static str],
    letters: Letters,
    least: usize,
    most: usize,
) -> Rule {
    Rule { name, starts, letters, least, most }
}

const RULES: &[Rule] = &[
    rule("aws-access-key", &["AKIA", "ASIA", "ABIA", "ACCA"], Letters::Upper, 16, 16),
    rule("github-token", &["ghp_", "gho_", "ghu_", "ghs_", "ghr_"], Letters::Alnum, 36, 255),
    rule("github-fine-grained-token", &["github_pat_"], Letters::Token, 50, 255),
    rule(
        "gitlab-token",
        &["glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "glft-", "glsoat-"],
        Letters::Token,
        20,
        255,
    ),
    rule(
        "slack-token",
        &["xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xoxe-", "xapp-"],
        Letters::Token,
        20,
        255,
    ),
    rule("slack-webhook", &["hooks.slack.com/services/T"], Letters::Base64, 30, 255),
    rule("stripe-key", &["sk_live_", "rk_live_"], Letters::Alnum, 16, 255),
    rule("google-api-key", &["AIza"], Letters::Token, 35, 35),
    rule("google-oauth-secret", &["GOCSPX-"], Letters::Token, 28, 28),
    rule("google-oauth-token", &["ya29."], Letters::Token, 60, 2048),
    rule("anthropic-key", &["sk-ant-"], Letters::Token, 24, 255),
    rule("openai-key", &["sk-proj-", "sk-svcacct-", "sk-admin-"], Letters::Token, 24, 255),
    rule("openrouter-key", &["sk-or-v1-"], Letters::Hex, 40, 128),
    rule("npm-token", &["npm_"], Letters::Alnum, 36, 36),
    rule(
        "pypi-token",
        &["pypi-AgEIcHlwaS5vcmc", "pypi-AgENdGVzdC5weXBpLm9yZw"],
        Letters::Token,
        40,
        1024,
    ),
    rule("crates-io-token", &["cio"], Letters::Alnum, 32, 32),
    rule("huggingface-token", &["hf_"], Letters::Alnum, 34, 34),
    rule("digitalocean-token", &["dop_v1_", "doo_v1_", "dor_v1_"], Letters::Hex, 64, 64),
    rule("sendgrid-key", &["SG."], Letters::Dotted, 60, 80),
    rule("azure-storage-key", &["AccountKey="], Letters::Base64, 80, 100),
    rule("age-key", &["AGE-SECRET-KEY-1"], Letters::Upper, 50, 70),
    rule("databricks-token", &["dapi"], Letters::Hex, 32, 32),
    rule("vault-token", &["hvs.", "hvb."], Letters::Token, 24, 255),
    rule("shopify-token", &["shpat_", "shpss_", "shppa_"], Letters::Hex, 32, 32),
    rule("linear-key", &["lin_api_"], Letters::Alnum, 32, 64),
    rule("docker-token", &["dckr_pat_"], Letters::Token, 20, 64),
];

/// Fewer different letters than this, and it is a placeholder.
const VARIETY_MIN: usize = 6;
/// Words in a line that make a signed token a secret.
const SECRET_WORDS: &[&str] =
    &["secret", "token", "password", "auth", "key", "credential", "bearer"];

/// What is looked for and what is let pass.
#[derive(Debug, Clone, Default)]
pub struct Scan {
    /// Values that must never be seen.
    known: Vec<Vec<u8>>,
    /// Rules to leave out.
    rules: Vec<String>,
    /// Texts whose lines are let pass.
    texts: Vec<String>,
    /// Globs of files that are let pass.
    pub paths: Vec<String>,
}

impl Scan {
    /// From values and the `[secrets] allow` setting.
    pub fn new(known: impl IntoIterator<Item = String>, allow: &[String]) -> Self {
        let mut scan = Self::default();
        for entry in allow {
            match entry.split_once(':') {
                Some(("rule", name)) => scan.rules.push(name.trim().to_owned()),
                Some(("path", glob)) => scan.paths.push(glob.trim().to_owned()),
                _ => scan.texts.push(entry.clone()),
            }
        }
        let long = |value: &String| value.len() >= crate::redact::SECRET_LEN_MIN;
        scan.known = known.into_iter().filter(long).map(String::into_bytes).collect();
        scan
    }

    /// The first thing in a line that must not land. A known value is never let pass.
    pub fn line(&self, line: &[u8]) -> Option<Leak> {
        if self.known.iter().any(|value| contains(line, value)) {
            return Some(Leak { rule: "known-value" });
        }
        let rule = by_shape(line, &self.rules)?;
        let passes = contains(line, ALLOW_MARK.as_bytes())
            || self.texts.iter().any(|text| contains(line, text.as_bytes()));
        (!passes).then_some(Leak { rule })
    }
}

fn by_shape(line: &[u8], without: &[String]) -> Option<&'static str> {
    let wanted = |name: &str| !without.iter().any(|rule| rule == name);
    if wanted("private-key") && is_private_key(line) {
        return Some("private-key");
    }
    if wanted("signed-token") && is_signed_token(line) {
        return Some("signed-token");
    }
    RULES.iter().filter(|rule| wanted(rule.name)).find(|rule| rule.hits(line)).map(|rule| rule.name)
}

impl Letters {
    fn has(self, b: u8) -> bool {
        match self {
            Self::Upper => b.is_ascii_uppercase() || b.is_ascii_digit(),
            Self::Alnum => b.is_ascii_alphanumeric(),
            Self::Token => b.is_ascii_alphanumeric() || b == b'_' || b == b'-',
            Self::Dotted => b.is_ascii_alphanumeric() || b"_-.".contains(&b),
            Self::Hex => b.is_ascii_digit() || (b'a'..=b'f').contains(&b),
            Self::Base64 => b.is_ascii_alphanumeric() || b"+/=".contains(&b),
        }
    }
}

impl Rule {
    fn hits(&self, line: &[u8]) -> bool {
        self.starts.iter().any(|start| {
            positions(line, start.as_bytes()).any(|at| {
                let alone = at == 0 || !line[at - 1].is_ascii_alphanumeric();
                let rest = &line[at + start.len()..];
                let length = rest.iter().take_while(|b| self.letters.has(**b)).count();
                let body = &rest[..length];
                alone
                    && (self.least..=self.most).contains(&length)
                    && variety(body) >= VARIETY_MIN
                    && !contains(body, b"EXAMPLE")
            })
        })
    }
}

fn is_private_key(line: &[u8]) -> bool {
    positions(line, b"-----BEGIN ").any(|at| {
        let rest = &line[at..];
        contains(&rest[..rest.len().min(80)], b"PRIVATE KEY")
    })
}

/// Three parts in base64, the first two of them JSON, in a line that speaks of secrets.
fn is_signed_token(line: &[u8]) -> bool {
    let token = positions(line, b"eyJ").any(|at| {
        let body: Vec<u8> = line[at..].iter().copied().take_while(|b| Letters::Dotted.has(*b)).collect();
        let parts: Vec<&[u8]> = body.split(|b| *b == b'.').collect();
        matches!(parts[..], [head, claims, sign, ..]
            if head.len() > 15 && claims.starts_with(b"eyJ") && claims.len() > 15 && sign.len() > 20)
    });
    let lower = line.to_ascii_lowercase();
    token && SECRET_WORDS.iter().any(|word| contains(&lower, word.as_bytes()))
}

fn variety(bytes: &[u8]) -> usize {
    let mut seen = [false; 256];
    bytes.iter().for_each(|b| seen[usize::from(*b)] = true);
    seen.iter().filter(|seen| **seen).count()
}

fn contains(line: &[u8], part: &[u8]) -> bool {
    positions(line, part).next().is_some()
}

fn positions<'a>(line: &'a [u8], part: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    let first = part.first().copied();
    (0..line.len()).filter(move |at| Some(line[*at]) == first && line[*at..].starts_with(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule_of(line: &str) -> Option<&'static str> {
        Scan::default().line(line.as_bytes()).map(|leak| leak.rule)
    }

    /// Put together here, so that no scan finds this file.
    fn join(start: &str, rest: &str) -> String {
        format!("{start}{rest}")
    }

    #[test]
    fn tokens_are_known_by_their_shape() {
        let body = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0";
        for (start, rest, rule) in [
            ("AKI", "AQ3EGRTZ7KPM4XWVB", "aws-access-key"),
            ("gh", &format!("p_{}", &body[..36]), "github-token"),
            ("github_", &format!("pat_{body}{body}"), "github-fine-grained-token"),
            ("glp", &format!("at-{}", &body[..20]), "gitlab-token"),
            ("xox", &format!("b-{}", &body[..30]), "slack-token"),
            ("sk_", &format!("live_{}", &body[..24]), "stripe-key"),
            ("AI", &format!("za{}", &body[..35]), "google-api-key"),
            ("sk-", &format!("ant-api03-{body}"), "anthropic-key"),
            ("sk-", &format!("proj-{body}"), "openai-key"),
            ("np", &format!("m_{}", &body[..36]), "npm-token"),
            ("hf", &format!("_{}", &body[..34]), "huggingface-token"),
            ("-----BEGIN ", "OPENSSH PRIVATE KEY-----", "private-key"),
        ] {
            let secret = join(start, rest);
            assert_eq!(rule_of(&format!("let x = \"{secret}\";")), Some(rule), "{secret}");
            assert_eq!(rule_of(&secret), Some(rule));
        }
        let jwt = format!("eyJ{body}.eyJ{body}.{body}");
        assert_eq!(rule_of(&format!("auth_token = {jwt}")), Some("signed-token"));
        assert_eq!(rule_of(&format!("example = {jwt}")), None);
    }

    #[test]
    fn what_only_resembles_a_secret_is_left_alone() {
        for line in [
            "AKIAIOSFODNN7EXAMPLE",
            "ghp_xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
            "task-slack xoxb-short",
            "npm_config_cache=/x",
            "disk_live_abcdefghijklmnopqrstuv",
            "-----BEGIN CERTIFICATE-----",
            "sk-learn is a library",
            "3f786850e387550fdab836ed7e6dc881de23001b",
        ] {
            assert_eq!(rule_of(line), None, "{line}");
        }
    }

    #[test]
    fn a_person_can_let_things_pass_but_never_a_known_value() {
        let secret = join("sk_", "live_a1B2c3D4e5F6g7H8");
        let allow = |entry: &str| Scan::new([], &[entry.to_owned()]);
        let line = format!("key = {secret} # from the docs");
        assert!(Scan::default().line(line.as_bytes()).is_some());
        assert!(allow("rule:stripe-key").line(line.as_bytes()).is_none());
        assert!(allow("from the docs").line(line.as_bytes()).is_none());
        assert_eq!(allow("path:docs/**").paths, ["docs/**"]);
        let marked = format!("{line} {ALLOW_MARK}");
        assert!(Scan::default().line(marked.as_bytes()).is_none());
        let known = Scan::new(["hunter2hunter2".to_owned()], &[]);
        let line = format!("x hunter2hunter2 {ALLOW_MARK}");
        assert_eq!(known.line(line.as_bytes()), Some(Leak { rule: "known-value" }));
    }
}
