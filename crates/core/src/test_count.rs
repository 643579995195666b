//! Whether a gate that passed says itself that it tested nothing: a filter that matches no test, a suite that was
//! not found. Knows how the common runners put it. Of a runner it does not know it says nothing.

/// What the lines of a gate's output say so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TestCount {
    some: bool,
    none: bool,
}

/// Lines with which runners say that there was nothing to run, however they begin.
const NOTHING: &[&str] = &[
    "no tests ran",
    "no tests to run",
    "no tests were found",
    "no tests found",
    "no test files",
    "no test files found",
    "no tests executed",
    "no test is available",
    "no tests run",
];

/// What stands before the number of tests, by runner.
const BEFORE: &[&str] =
    &["running ", "ran ", "collected ", "tests run: ", "# tests ", "ℹ tests ", "1.."];

/// What stands after it.
const AFTER: &[&str] = &[" passing", " tests run:", " test run:", " examples,", " passed"];

impl TestCount {
    /// Reads one more line.
    pub fn read_line(&mut self, line: &str) {
        let line = line.trim().to_lowercase();
        if NOTHING.iter().any(|words| line.contains(words)) {
            self.none = true;
            return;
        }
        match count_in_line(&line) {
            Some(0) => self.none = true,
            Some(_) => self.some = true,
            // Go names the packages that it tested, and adds a word to those that have no test.
            None => self.some |= line.starts_with("ok \t") || line.starts_with("ok  \t"),
        }
    }

    /// It says that it ran tests, and how many: none.
    pub fn is_zero(self) -> bool {
        self.none && !self.some
    }
}

/// The number of tests in a line that says how many there are.
fn count_in_line(line: &str) -> Option<u64> {
    let before = BEFORE.iter().find_map(|words| {
        let (number, rest) = leading_number(line.strip_prefix(words)?)?;
        let said = match *words {
            "running " | "ran " => rest.trim_start().starts_with("test"),
            "collected " => rest.trim_start().starts_with("item"),
            _ => true,
        };
        said.then_some(number)
    });
    before.or_else(|| {
        AFTER.iter().find_map(|words| {
            let (start, _) = line.split_once(words)?;
            let at = start.rfind(|c: char| !c.is_ascii_digit()).map_or(0, |at| at + 1);
            // `0.5 passed` is no count; a rim of signs before it is common.
            let rim = start[..at].chars().last();
            let alone = rim.is_none_or(|c| c.is_whitespace());
            alone.then(|| start.get(at..)?.parse().ok()).flatten()
        })
    })
}

fn leading_number(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_zero(output: &str) -> bool {
        let mut tally = TestCount::default();
        output.lines().for_each(|line| tally.read_line(line));
        tally.is_zero()
    }

    #[test]
    fn runners_that_ran_nothing_are_understood() {
        for output in [
            "\nrunning 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored; 3 filtered out\n",
            "    Summary [   0.010s] 0 tests run: 0 passed, 12 skipped",
            "============ no tests ran in 0.01s ============",
            "collected 0 items\n======== 1 warning in 0.01s ========",
            "ok  \texample.com/a\t0.002s [no tests to run]\n?   \texample.com/b\t[no test files]",
            "No tests found, exiting with code 0",
            "No test files found, exiting with code 0",
            "  0 passing (1ms)",
            "# tests 0\n# pass 0",
            "Ran 0 tests in 0.000s\n\nOK",
            "0 examples, 0 failures",
            "No tests were found!!!",
            "No tests executed!",
            "1..0",
        ] {
            assert!(is_zero(output), "{output}");
        }
    }

    #[test]
    fn whoever_ran_one_test_or_says_nothing_of_tests_is_believed() {
        for output in [
            "",
            "all fine",
            "running 0 tests\n\nrunning 2 tests\ntest a ... ok\n\nrunning 0 tests\n",
            "    Summary [   0.010s] 12 tests run: 12 passed, 0 skipped",
            "======= 3 passed, 1 warning in 0.01s =======",
            "ok  \texample.com/a\t0.002s\n?   \texample.com/b\t[no test files]",
            "  10 passing (1ms)",
            "# tests 7",
            "Ran 1 test in 0.000s",
            "running 0 migrations",
            "collected 0 coins",
            "collected 3 items\n\ntests/test_a.py ...",
            "1..4\nok 1 - one",
        ] {
            assert!(!is_zero(output), "{output}");
        }
    }
}
