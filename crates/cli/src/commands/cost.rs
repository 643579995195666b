//! `cost`: tokens and money of a run, by whatever people want to know it by, and what the rest may cost.

use mainstem_api::cost::{CostReport, CostRow, CostTotals};
use mainstem_api::exit_code;
use mainstem_core::money::CostGrouping;

use crate::args::{CostArgs, CostBy};
use crate::commands::status::collapse_to_line;
use crate::context::CliContext;
use crate::error::CommandResult;
use crate::output;

/// Money spent, and on what.
pub(crate) fn cmd_cost(context: &CliContext, args: &CostArgs) -> CommandResult {
    let (_, layout, look) = context.open_run(args.run.as_deref())?;
    let report = look.cost(&layout, cost_grouping(args.by))?;
    if context.global.json {
        output::write_json(&report)?;
    } else if args.csv {
        output::write_stdout(&cost_csv(&report))?;
    } else if report.rows.is_empty() && report.planning.attempts == 0 {
        output::write_stderr("no agent has reported tokens or cost yet");
    } else {
        let mut out = String::new();
        if !report.rows.is_empty() {
            out = cost_table(&report);
        }
        if report.planning.attempts > 0 {
            if !out.is_empty() {
                out.push('\n');
            }
            out.push_str(&draft_cost_text(&report.planning));
        }
        output::write_stdout(&out)?;
    }
    Ok(exit_code::OK)
}

fn cost_grouping(by: CostBy) -> CostGrouping {
    match by {
        CostBy::Attempt => CostGrouping::Attempt,
        CostBy::Task => CostGrouping::Task,
        CostBy::Epic => CostGrouping::Epic,
        CostBy::Model => CostGrouping::Model,
        CostBy::Agent => CostGrouping::Agent,
        CostBy::Day => CostGrouping::Day,
    }
}

fn row_name(report: &CostReport, row: &CostRow) -> String {
    row.group.get(&report.by).cloned().unwrap_or_default()
}

fn cost_csv(report: &CostReport) -> String {
    let mut text = format!(
        "{},attempts,input_tokens,output_tokens,cache_read_tokens,cache_write_tokens,cost_usd,included_usd,basis\n",
        report.by
    );
    for row in &report.rows {
        let of = &row.totals;
        text.push_str(&format!(
            "{},{},{},{},{},{},{:.6},{:.6},{}\n",
            csv_cell(&row_name(report, row)),
            of.attempts,
            of.input_tokens,
            of.output_tokens,
            of.cache_read_tokens,
            of.cache_write_tokens,
            of.cost_usd,
            of.included_usd,
            of.basis,
        ));
    }
    text
}

/// Quoted where it must be. A name comes from a plan or an agent, and a spreadsheet would take one that
/// begins like a formula for a formula.
fn csv_cell(name: &str) -> String {
    let name = collapse_to_line(name);
    let name = if name.starts_with(['=', '+', '-', '@']) { format!("'{name}") } else { name };
    if name.contains([',', '"', '\'']) {
        format!("\"{}\"", name.replace('"', "\"\""))
    } else {
        name
    }
}

fn cost_table(report: &CostReport) -> String {
    let head =
        [report.by.as_str(), "attempts", "in", "out", "cache read", "cache write", "cost", "basis"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(
        report
            .rows
            .iter()
            .map(|row| cost_row(&collapse_to_line(&row_name(report, row)), &row.totals)),
    );
    rows.push(cost_row("total", &report.total));
    let mut text = output::format_table(&rows);
    let total = &report.total;
    if total.included_usd > 0.0 {
        text.push_str(&format!(
            "\nusage worth ${:.2} was covered by a subscription\n",
            total.included_usd
        ));
    }
    if total.unpriced_tokens > 0 {
        text.push_str(&format!(
            "\n{} tokens have no price; add their models under [prices] in mainstem.toml\n",
            total.unpriced_tokens
        ));
    }
    if let Some(usd) = report.budget.usd {
        let percent = if usd > 0.0 { report.budget.spent_usd / usd * 100.0 } else { 100.0 };
        text.push_str(&format!(
            "\nbudget    ${:.2} of ${usd:.2} spent ({percent:.0}%), ${:.2} reserved\n",
            report.budget.spent_usd, report.budget.reserved_usd
        ));
    }
    let forecast = &report.forecast;
    if let (Some(average), Some(left), Some(all)) =
        (forecast.average_usd, forecast.estimated_remaining_usd, forecast.total_usd)
        && forecast.remaining > 0
    {
        text.push_str(&format!(
            "\nforecast  {} done at ${average:.2} on average; {} left for about ${left:.2} (${all:.2} in total)\n",
            output::count_noun(u64::from(forecast.ended), "task"),
            forecast.remaining,
        ));
    }
    text
}

/// What drafts of plans cost, all of them together: they belong to no run.
fn draft_cost_text(total: &CostTotals) -> String {
    format!(
        "planning  {}, {} tokens in, {} out, ${:.2} ({}): mainstem plan\n",
        output::count_noun(total.attempts, "call"),
        total.input_tokens + total.cache_read_tokens + total.cache_write_tokens,
        total.output_tokens,
        total.cost_usd + total.included_usd,
        total.basis,
    )
}

fn cost_row(name: &str, of: &CostTotals) -> Vec<String> {
    vec![
        output::truncate_to_width(name, 40),
        of.attempts.to_string(),
        of.input_tokens.to_string(),
        of.output_tokens.to_string(),
        of.cache_read_tokens.to_string(),
        of.cache_write_tokens.to_string(),
        format!("${:.4}", of.cost_usd),
        of.basis.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use super::csv_cell;

    #[test]
    fn a_cell_is_one_cell_and_no_formula() {
        assert_eq!(csv_cell("T-1"), "T-1");
        assert_eq!(csv_cell("a,b"), "\"a,b\"");
        assert_eq!(csv_cell("say \"x\""), "\"say \"\"x\"\"\"");
        assert_eq!(csv_cell("=1+1"), "\"'=1+1\"");
        assert_eq!(csv_cell("two\nlines"), "two lines");
    }
}
