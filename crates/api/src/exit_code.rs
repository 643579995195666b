//! What a finished `mainstem` process tells its caller.

/// Everything asked for landed, or the command did what it was asked.
pub const OK: u8 = 0;

/// It could not run: an error, said on standard error.
pub const ERROR: u8 = 1;

/// The run came to rest, and some tasks did not land.
pub const NOT_LANDED: u8 = 2;

/// Cancelled or interrupted; `mainstem run` goes on from here.
pub const INTERRUPTED: u8 = 3;

/// The command line was wrong; nothing was done.
pub const USAGE: u8 = 64;

/// Every code with its meaning, for reference pages.
pub const ALL: [(u8, &str); 5] = [
    (OK, "everything asked for landed"),
    (ERROR, "could not run (error)"),
    (NOT_LANDED, "ended with tasks not landed"),
    (INTERRUPTED, "cancelled or interrupted (resumable)"),
    (USAGE, "wrong usage"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_are_the_promised_numbers() {
        assert_eq!(ALL.map(|(code, _)| code), [0, 1, 2, 3, 64]);
    }
}
