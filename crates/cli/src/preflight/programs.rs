//! Programs that a shell command starts, as far as that can be told without a shell. Never guesses:
//! whatever is quoted, computed or a word of the shell itself is left out.

/// Words that a shell knows by itself, or that begin something we do not follow.
const OF_THE_SHELL: [&str; 38] = [
    ".", ":", "[", "[[", "!", "{", "}", "alias", "break", "case", "cd", "command", "continue",
    "do", "done", "echo", "elif", "else", "env", "eval", "exec", "exit", "export", "false", "fi",
    "for", "if", "printf", "return", "set", "shift", "source", "test", "then", "trap", "true",
    "unset", "while",
];

/// The names of programs that this command starts.
pub(crate) fn program_names(command: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    if command.contains(['`', '\n', '\'', '"']) && command.contains("<<") {
        return found;
    }
    for part in split_commands(command) {
        let assigns = |word: &&str| {
            word.split_once('=').is_some_and(|(name, _)| {
                !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            })
        };
        let Some(word) = part.split_whitespace().find(|word| !assigns(word)) else { continue };
        let word = word.trim_start_matches('(');
        let plain = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
        let usual = !word.is_empty() && word.chars().all(plain) && !word.starts_with('-');
        if usual && !OF_THE_SHELL.contains(&word) && !found.iter().any(|other| other == word) {
            found.push(word.to_owned());
        }
    }
    found
}

/// The simple commands of a line, split outside quotes.
fn split_commands(command: &str) -> Vec<String> {
    let (mut parts, mut part, mut quote, mut escaped) = (Vec::new(), String::new(), None, false);
    for c in command.chars() {
        let ends = quote.is_none() && !escaped && "&|;\n".contains(c);
        match quote {
            _ if escaped => escaped = false,
            None if c == '\\' => escaped = true,
            Some('"') if c == '\\' => escaped = true,
            Some(open) if c == open => quote = None,
            None if c == '"' || c == '\'' => quote = Some(c),
            _ => {}
        }
        if ends {
            parts.push(std::mem::take(&mut part));
        } else {
            part.push(c);
        }
    }
    parts.push(part);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_the_first_words_of_simple_commands() {
        assert_eq!(program_names("uv run pytest"), ["uv"]);
        assert_eq!(program_names("CI=1 npm test && cargo test | tee log"), ["npm", "cargo", "tee"]);
        assert_eq!(program_names("cd web && (pnpm install; pnpm test)"), ["pnpm"]);
        assert_eq!(program_names("echo 'a; b' && make"), ["make"]);
    }

    #[test]
    fn what_only_a_shell_could_tell_is_left_out() {
        let none: [&str; 0] = [];
        for command in
            ["$TOOL run", "test -f x", "./gradlew test", "\"my tool\" x", "if true; then :; fi"]
        {
            assert_eq!(program_names(command), none, "{command}");
        }
    }
}
