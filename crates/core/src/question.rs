//! Answers that nobody has to think about: rules over the text of a question, and what may count as an
//! answer where a question offers a choice. Knows nothing of who asks.

/// An answer on its way to an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PendingAnswer {
    /// To which question of the attempt.
    pub number: u32,
    /// Its name in the inbox.
    pub question: String,
    pub text: String,
    /// The asker's own name for the question.
    pub reference: Option<String>,
}

/// An answer that no agent has been given yet: whoever asks the same again gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EarlyAnswer {
    /// The question's name in the inbox.
    pub name: String,
    /// The question, word for word.
    pub question: String,
    pub answer: String,
    pub by: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerRule {
    /// Lower case; `*` stands for any text. It may match anywhere in the question.
    pieces: Vec<String>,
    pub answer: String,
}

impl AnswerRule {
    /// Reads a rule; none if a side of it is empty.
    pub fn parse(text: &str) -> Option<Self> {
        let (pattern, answer) = text.split_once("=>")?;
        let answer = answer.trim();
        let pieces: Vec<String> = pattern
            .trim()
            .split('*')
            .map(|piece| collapse_spaces(piece).to_lowercase())
            .filter(|piece| !piece.is_empty())
            .collect();
        // A lone star is a rule for everything; nothing at all is a mistake.
        let any = pattern.contains('*');
        let whole = !answer.is_empty() && (any || !pieces.is_empty());
        whole.then(|| Self { pieces, answer: answer.to_owned() })
    }

    /// Whether it is about this question. Case and the amount of space do not count.
    pub fn matches(&self, question: &str) -> bool {
        let question = collapse_spaces(question).to_lowercase();
        let mut rest = question.as_str();
        self.pieces.iter().all(|piece| match rest.find(piece.as_str()) {
            Some(at) => {
                rest = &rest[at + piece.len()..];
                true
            }
            None => false,
        })
    }
}

fn collapse_spaces(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What the rules answer, if one does. An answer that is not among the options is none.
pub fn answer_by_rules(rules: &[AnswerRule], question: &str, options: &[String]) -> Option<String> {
    let rule = rules.iter().find(|rule| rule.matches(question))?;
    match_option(&rule.answer, options)
}

/// The answer that a text stands for: one of the options by its words or its number; any text where there
/// is nothing to choose from.
pub fn match_option(text: &str, options: &[String]) -> Option<String> {
    let text = text.trim();
    if text.is_empty() {
        return None;
    }
    if options.is_empty() {
        return Some(text.to_owned());
    }
    let named = options.iter().find(|option| option.trim().eq_ignore_ascii_case(text));
    let numbered = || options.get(text.parse::<usize>().ok()?.checked_sub(1)?);
    named.or_else(numbered).cloned()
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    fn rules(texts: &[&str]) -> Vec<AnswerRule> {
        texts.iter().map(|text| AnswerRule::parse(text).unwrap()).collect()
    }

    #[test]
    fn the_first_rule_that_matches_answers() {
        let rules = rules(&["which port => 8080", "may i * files => no", "* => ask me later"]);
        let answer = |question: &str| answer_by_rules(&rules, question, &[]).unwrap();
        assert_eq!(answer("Which  PORT shall it be?"), "8080");
        assert_eq!(answer("May I delete these two files?"), "no");
        assert_eq!(answer("Files? May I?"), "ask me later");
    }

    #[test]
    fn a_rule_cannot_answer_what_was_not_offered() {
        let rules = rules(&["colour => Blue", "size => 2"]);
        let options = ["red".to_owned(), "blue".to_owned()];
        assert_eq!(answer_by_rules(&rules, "Which colour?", &options).as_deref(), Some("blue"));
        assert_eq!(answer_by_rules(&rules, "Which size?", &options).as_deref(), Some("blue"));
        assert_eq!(answer_by_rules(&rules, "Which colour?", &options[..1]), None);
        assert_eq!(answer_by_rules(&rules, "What now?", &[]), None);
    }

    #[test]
    fn half_a_rule_is_none() {
        for text in ["", "=>", "a =>", "=> b", "a", " => "] {
            assert_eq!(AnswerRule::parse(text), None, "{text:?}");
        }
        assert!(AnswerRule::parse("* => x").unwrap().matches("anything"));
        assert!(AnswerRule::parse("a => b => c").unwrap().answer == "b => c");
    }

    #[test]
    fn a_choice_is_made_by_words_or_number() {
        let options = ["Yes".to_owned(), "No".to_owned()];
        assert_eq!(match_option(" no ", &options).as_deref(), Some("No"));
        assert_eq!(match_option("1", &options).as_deref(), Some("Yes"));
        assert_eq!(match_option("3", &options), None);
        assert_eq!(match_option("0", &options), None);
        assert_eq!(match_option("perhaps", &options), None);
        assert_eq!(match_option(" ", &[]), None);
        assert_eq!(match_option("perhaps", &[]).as_deref(), Some("perhaps"));
    }
}
