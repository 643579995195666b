//! Finds what looks like a secret in lines that are about to land, by shape and by known value.
//!
//! Only shapes that are hardly ever anything else: a scan that cries wolf is switched off. Never repeats
//! what it found. Knows lines, not files: where they come from and what a find means is decided elsewhere.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecretLeak {
    pub rule: &'static str,
}

/// In a line, for the eye of the scan: look away.
pub const ALLOW_MARK: &str = "mainstem:allow-secret";

/// Letters that may follow a rule's start.
#[derive(Clone, Copy)]
enum SecretCharset {
    Upper,
    Alnum,
    /// A letter or digit, `_` or `-`.
    Token,
    /// A letter or digit, `_`, `-` or `.`.
    Dotted,
    Hex,
    Base64,
}

struct SecretRule {
    name: &'static str,
    starts: &'static [&'static str],
    letters: SecretCharset,
    least: usize,
    most: usize,
}

const fn secret_rule(
    name: &'static str,
    starts: &'static [&'static str],
    letters: SecretCharset,
    least: usize,
    most: usize,
) -> SecretRule {
    SecretRule { name, starts, letters, least, most }
}

const RULES: &[SecretRule] = &[
    secret_rule("aws-access-key", &["AKIA", "ASIA", "ABIA", "ACCA"], SecretCharset::Upper, 16, 16),
    secret_rule(
        "github-token",
        &["ghp_", "gho_", "ghu_", "ghs_", "ghr_"],
        SecretCharset::Alnum,
        36,
        255,
    ),
    secret_rule("github-fine-grained-token", &["github_pat_"], SecretCharset::Token, 50, 255),
    secret_rule(
        "gitlab-token",
        &["glpat-", "gldt-", "glrt-", "glcbt-", "glptt-", "glft-", "glsoat-"],
        SecretCharset::Token,
        20,
        255,
    ),
    secret_rule(
        "slack-token",
        &["xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xoxe-", "xapp-"],
        SecretCharset::Token,
        20,
        255,
    ),
    secret_rule("slack-webhook", &["hooks.slack.com/services/T"], SecretCharset::Base64, 30, 255),
    secret_rule("stripe-key", &["sk_live_", "rk_live_"], SecretCharset::Alnum, 16, 255),
    secret_rule("google-api-key", &["AIza"], SecretCharset::Token, 35, 35),
    secret_rule("google-oauth-secret", &["GOCSPX-"], SecretCharset::Token, 28, 28),
    secret_rule("google-oauth-token", &["ya29."], SecretCharset::Token, 60, 2048),
    secret_rule("anthropic-key", &["sk-ant-"], SecretCharset::Token, 24, 255),
    secret_rule(
        "openai-key",
        &["sk-proj-", "sk-svcacct-", "sk-admin-"],
        SecretCharset::Token,
        24,
        255,
    ),
    secret_rule("openrouter-key", &["sk-or-v1-"], SecretCharset::Hex, 40, 128),
    secret_rule("npm-token", &["npm_"], SecretCharset::Alnum, 36, 36),
    secret_rule(
        "pypi-token",
        &["pypi-AgEIcHlwaS5vcmc", "pypi-AgENdGVzdC5weXBpLm9yZw"],
        SecretCharset::Token,
        40,
        1024,
    ),
    secret_rule("crates-io-token", &["cio"], SecretCharset::Alnum, 32, 32),
    secret_rule("huggingface-token", &["hf_"], SecretCharset::Alnum, 34, 34),
    secret_rule(
        "digitalocean-token",
        &["dop_v1_", "doo_v1_", "dor_v1_"],
        SecretCharset::Hex,
        64,
        64,
    ),
    secret_rule("sendgrid-key", &["SG."], SecretCharset::Dotted, 60, 80),
    secret_rule("azure-storage-key", &["AccountKey="], SecretCharset::Base64, 80, 100),
    secret_rule("age-key", &["AGE-SECRET-KEY-1"], SecretCharset::Upper, 50, 70),
    secret_rule("databricks-token", &["dapi"], SecretCharset::Hex, 32, 32),
    secret_rule("vault-token", &["hvs.", "hvb."], SecretCharset::Token, 24, 255),
    secret_rule("shopify-token", &["shpat_", "shpss_", "shppa_"], SecretCharset::Hex, 32, 32),
    secret_rule("linear-key", &["lin_api_"], SecretCharset::Alnum, 32, 64),
    secret_rule("docker-token", &["dckr_pat_"], SecretCharset::Token, 20, 64),
];

/// Fewer different letters than this, and it is a placeholder.
const VARIETY_MIN: usize = 6;
/// Words in a line that make a signed token a secret.
const SECRET_WORDS: &[&str] =
    &["secret", "token", "password", "auth", "key", "credential", "bearer"];

/// What is looked for and what is let pass.
#[derive(Debug, Clone, Default)]
pub struct SecretScanner {
    /// Values that must never be seen.
    known: Vec<Vec<u8>>,
    /// Rules to leave out.
    rules: Vec<String>,
    /// Texts whose lines are let pass.
    texts: Vec<String>,
    /// Globs of files that are let pass.
    pub paths: Vec<String>,
}

impl SecretScanner {
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
    pub fn scan_line(&self, line: &[u8]) -> Option<SecretLeak> {
        if self.known.iter().any(|value| contains_bytes(line, value)) {
            return Some(SecretLeak { rule: "known-value" });
        }
        let rule = find_by_shape(line, &self.rules)?;
        let passes = contains_bytes(line, ALLOW_MARK.as_bytes())
            || self.texts.iter().any(|text| contains_bytes(line, text.as_bytes()));
        (!passes).then_some(SecretLeak { rule })
    }
}

fn find_by_shape(line: &[u8], without: &[String]) -> Option<&'static str> {
    let wanted = |name: &str| !without.iter().any(|rule| rule == name);
    if wanted("private-key") && is_private_key(line) {
        return Some("private-key");
    }
    if wanted("signed-token") && is_signed_token(line) {
        return Some("signed-token");
    }
    RULES
        .iter()
        .filter(|rule| wanted(rule.name))
        .find(|rule| rule.matches_line(line))
        .map(|rule| rule.name)
}

impl SecretCharset {
    fn contains_byte(self, b: u8) -> bool {
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

impl SecretRule {
    fn matches_line(&self, line: &[u8]) -> bool {
        self.starts.iter().any(|start| {
            find_positions(line, start.as_bytes()).any(|at| {
                let alone = at == 0 || !line[at - 1].is_ascii_alphanumeric();
                let rest = &line[at + start.len()..];
                let length = rest.iter().take_while(|b| self.letters.contains_byte(**b)).count();
                let body = &rest[..length];
                alone
                    && (self.least..=self.most).contains(&length)
                    && distinct_byte_count(body) >= VARIETY_MIN
                    && !contains_bytes(body, b"EXAMPLE")
            })
        })
    }
}

fn is_private_key(line: &[u8]) -> bool {
    find_positions(line, b"-----BEGIN ").any(|at| {
        let rest = &line[at..];
        contains_bytes(&rest[..rest.len().min(80)], b"PRIVATE KEY")
    })
}

/// Three parts in base64, the first two of them JSON, in a line that speaks of secrets.
fn is_signed_token(line: &[u8]) -> bool {
    let token = find_positions(line, b"eyJ").any(|at| {
        let body: Vec<u8> = line[at..].iter().copied().take_while(|b| SecretCharset::Dotted.contains_byte(*b)).collect();
        let parts: Vec<&[u8]> = body.split(|b| *b == b'.').collect();
        matches!(parts[..], [head, claims, sign, ..]
            if head.len() > 15 && claims.starts_with(b"eyJ") && claims.len() > 15 && sign.len() > 20)
    });
    let lower = line.to_ascii_lowercase();
    token && SECRET_WORDS.iter().any(|word| contains_bytes(&lower, word.as_bytes()))
}

fn distinct_byte_count(bytes: &[u8]) -> usize {
    let mut seen = [false; 256];
    bytes.iter().for_each(|b| seen[usize::from(*b)] = true);
    seen.iter().filter(|seen| **seen).count()
}

fn contains_bytes(line: &[u8], part: &[u8]) -> bool {
    find_positions(line, part).next().is_some()
}

fn find_positions<'a>(line: &'a [u8], part: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    let first = part.first().copied();
    (0..line.len()).filter(move |at| Some(line[*at]) == first && line[*at..].starts_with(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule_of(line: &str) -> Option<&'static str> {
        SecretScanner::default().scan_line(line.as_bytes()).map(|leak| leak.rule)
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
        let allow = |entry: &str| SecretScanner::new([], &[entry.to_owned()]);
        let line = format!("key = {secret} # from the docs");
        assert!(SecretScanner::default().scan_line(line.as_bytes()).is_some());
        assert!(allow("rule:stripe-key").scan_line(line.as_bytes()).is_none());
        assert!(allow("from the docs").scan_line(line.as_bytes()).is_none());
        assert_eq!(allow("path:docs/**").paths, ["docs/**"]);
        let marked = format!("{line} {ALLOW_MARK}");
        assert!(SecretScanner::default().scan_line(marked.as_bytes()).is_none());
        let known = SecretScanner::new(["hunter2hunter2".to_owned()], &[]);
        let line = format!("x hunter2hunter2 {ALLOW_MARK}");
        assert_eq!(known.scan_line(line.as_bytes()), Some(SecretLeak { rule: "known-value" }));
    }
}
