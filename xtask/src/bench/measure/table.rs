//! Small tables and the numbers in them. Knows nothing of what is measured.

/// Rows of words under a head, printed in columns: the first to the left, the rest to the right.
pub(super) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(head: &[&str]) -> Self {
        Self { rows: vec![head.iter().map(ToString::to_string).collect()] }
    }

    pub(super) fn row(&mut self, cells: &[String]) {
        self.rows.push(cells.to_vec());
    }

    /// The table as text.
    pub(super) fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            text.push_str("   ");
            for (column, cell) in row.iter().enumerate() {
                let pad = " ".repeat(widths[column] - cell.chars().count());
                if column == 0 {
                    text.push_str(&format!("{cell}{pad}"));
                } else {
                    text.push_str(&format!("  {pad}{cell}"));
                }
            }
            text.truncate(text.trim_end_matches(' ').len());
            text.push('\n');
        }
        text
    }

    pub(super) fn print(&self) {
        print!("{}", self.text());
    }
}

/// Prints what was asked for beside what came out.
pub(super) fn judge(what: &str, measured: f64, at_most: f64, unit: &str) {
    let word = if measured <= at_most { "reached" } else { "MISSED" };
    println!("   target: {what} ≤ {at_most}{unit}; measured {measured:.3}{unit}: {word}");
}

/// Numbers in order, for quantiles.
#[derive(Debug, Clone, Default)]
pub(super) struct Sample(Vec<f64>);

impl Sample {
    /// From numbers in any order.
    pub(super) fn new(mut numbers: Vec<f64>) -> Self {
        numbers.sort_by(f64::total_cmp);
        Self(numbers)
    }

    /// The smallest number that this share of all does not exceed; not a number if there is none.
    pub(super) fn quantile(&self, share: f64) -> f64 {
        let last = self.0.len().saturating_sub(1);
        let at = (self.0.len() as f64 * share).ceil() as usize;
        self.0.get(at.saturating_sub(1).min(last)).copied().unwrap_or(f64::NAN)
    }

    pub(super) fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    pub(super) fn worst(&self) -> f64 {
        self.0.last().copied().unwrap_or(f64::NAN)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Which share is at most `limit`.
    pub(super) fn share_within(&self, limit: f64) -> f64 {
        self.0.iter().filter(|number| **number <= limit).count() as f64 / self.0.len().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_numbers_of_the_sample() {
        let sample = Sample::new((1..=100).rev().map(f64::from).collect());
        assert_eq!([0.0, 0.5, 0.99, 1.0].map(|q| sample.quantile(q)), [1.0, 50.0, 99.0, 100.0]);
        assert_eq!(sample.share_within(25.0), 0.25);
        assert!(Sample::default().median().is_nan());
    }

    #[test]
    fn columns_line_up_and_lines_end_without_blanks() {
        let mut table = Table::new(&["what", "ms"]);
        table.row(&["näh".to_owned(), "12".to_owned()]);
        assert_eq!(table.text(), "   what  ms\n   näh   12\n");
    }
}
