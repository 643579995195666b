//! `cost`: tokens and money of a run, by whatever people want to know it by, and what the rest may cost.

use mainstem_api::exit_code;
use mainstem_api::outlook::with_rounded_money;
use mainstem_core::id::Time;
use mainstem_core::machine::Machine;
use mainstem_core::money::{CostAccount, CostGrouping, CostSum};
use serde_json::{Value, json};

use crate::args::{CostArgs, CostBy};
use crate::commands::history;
use crate::commands::status::collapse_to_line;
use crate::context::CliContext;
use crate::error::CommandResult;
use crate::output;

/// Money spent, and on what.
pub(crate) fn cmd_cost(context: &CliContext, args: &CostArgs) -> CommandResult {
    let (_, layout, look) = context.open_run(args.run.as_deref())?;
    let mut account = CostAccount::new(cost_grouping(args.by));
    for (record, fact) in history::read_facts(&look, None)? {
        account.apply_fact(&fact, Time(record.at_ms));
    }
    let mut planning = CostAccount::new(cost_grouping(args.by));
    for (fact, at) in mainstem_engine::draft::read_all_draft_facts(&layout)? {
        planning.apply_fact(&fact, at);
    }
    if context.global.json {
        let mut all = cost_json(&account, &look.machine, args.by);
        all["planning"] = sum_json(&planning.total);
        output::write_json(&with_rounded_money(all))?;
    } else if args.csv {
        output::write_stdout(&cost_csv(&account, args.by))?;
    } else if account.sums.is_empty() && planning.sums.is_empty() {
        output::write_stderr("no agent has reported tokens or cost yet");
    } else {
        let mut out = String::new();
        if !account.sums.is_empty() {
            out = cost_table(&account, &look.machine, args.by);
        }
        if !planning.sums.is_empty() {
            if !out.is_empty() {
                out.push('\n');
            }
            out.push_str(&draft_cost_text(&planning.total));
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

fn grouping_word(by: CostBy) -> &'static str {
    match by {
        CostBy::Attempt => "attempt",
        CostBy::Task => "task",
        CostBy::Epic => "epic",
        CostBy::Model => "model",
        CostBy::Agent => "agent",
        CostBy::Day => "day",
    }
}

fn sum_json(sum: &CostSum) -> Value {
    json!({
        "attempts": sum.attempts.len(),
        "input_tokens": sum.input_tokens, "output_tokens": sum.output_tokens,
        "cache_read_tokens": sum.cache_read_tokens, "cache_write_tokens": sum.cache_write_tokens,
        "cost_usd": sum.paid_usd(), "reported_usd": sum.reported_usd,
        "estimated_usd": sum.estimated_usd, "included_usd": sum.included_usd,
        "unpriced_tokens": sum.unpriced_tokens, "basis": sum.basis(),
    })
}

fn cost_json(account: &CostAccount, machine: &Machine, by: CostBy) -> Value {
    let rows: Vec<Value> = account
        .sums
        .iter()
        .map(|(name, of)| {
            let mut row = sum_json(of);
            row[grouping_word(by)] = name.clone().into();
            row
        })
        .collect();
    let budget = &machine.settings().budget;
    let forecast = machine.cost_forecast();
    json!({
        "schema": "mainstem.cost/1", "by": grouping_word(by), "rows": rows, "total": sum_json(&account.total),
        "budget": {
            "usd": budget.usd, "hard": budget.hard, "per_task_usd": budget.per_task_usd,
            "spent_usd": machine.spent_usd(), "reserved_usd": machine.reserved_usd(),
        },
        "forecast": {
            "completed": forecast.completed, "remaining": forecast.remaining,
            "average_usd": forecast.average_usd,
            "estimated_remaining_usd": forecast.estimated_remaining_usd,
            "total_usd": forecast.total_usd,
        },
    })
}

fn cost_csv(account: &CostAccount, by: CostBy) -> String {
    let mut text = format!(
        "{},attempts,input_tokens,output_tokens,cache_read_tokens,cache_write_tokens,cost_usd,included_usd,basis\n",
        grouping_word(by)
    );
    for (name, of) in &account.sums {
        text.push_str(&format!(
            "{},{},{},{},{},{},{:.6},{:.6},{}\n",
            csv_cell(name),
            of.attempts.len(),
            of.input_tokens,
            of.output_tokens,
            of.cache_read_tokens,
            of.cache_write_tokens,
            of.paid_usd(),
            of.included_usd,
            of.basis(),
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

fn cost_table(account: &CostAccount, machine: &Machine, by: CostBy) -> String {
    let head =
        [grouping_word(by), "attempts", "in", "out", "cache read", "cache write", "cost", "basis"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(account.sums.iter().map(|(name, of)| cost_row(&collapse_to_line(name), of)));
    rows.push(cost_row("total", &account.total));
    let mut text = output::format_table(&rows);
    let total = &account.total;
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
    if let Some(usd) = machine.settings().budget.usd {
        let percent = if usd > 0.0 { machine.spent_usd() / usd * 100.0 } else { 100.0 };
        text.push_str(&format!(
            "\nbudget    ${:.2} of ${usd:.2} spent ({percent:.0}%), ${:.2} reserved\n",
            machine.spent_usd(),
            machine.reserved_usd()
        ));
    }
    let forecast = machine.cost_forecast();
    if let (Some(average), Some(left), Some(all)) =
        (forecast.average_usd, forecast.estimated_remaining_usd, forecast.total_usd)
        && forecast.remaining > 0
    {
        text.push_str(&format!(
            "\nforecast  {} done at ${average:.2} on average; {} left for about ${left:.2} (${all:.2} in total)\n",
            output::count_noun(u64::from(forecast.completed), "task"),
            forecast.remaining,
        ));
    }
    text
}

/// What drafts of plans cost, all of them together: they belong to no run.
fn draft_cost_text(total: &CostSum) -> String {
    format!(
        "planning  {}, {} tokens in, {} out, ${:.2} ({}): mainstem plan\n",
        output::count_noun(total.attempts.len() as u64, "call"),
        total.input_tokens + total.cache_read_tokens + total.cache_write_tokens,
        total.output_tokens,
        total.paid_usd() + total.included_usd,
        total.basis(),
    )
}

fn cost_row(name: &str, of: &CostSum) -> Vec<String> {
    vec![
        output::truncate_to_width(name, 40),
        of.attempts.len().to_string(),
        of.input_tokens.to_string(),
        of.output_tokens.to_string(),
        of.cache_read_tokens.to_string(),
        of.cache_write_tokens.to_string(),
        format!("${:.4}", of.paid_usd()),
        of.basis().to_owned(),
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
