//! `cost`: tokens and money of a run, by whatever people want to know it by, and what the rest may cost.

use mainstem_api::exit_code;
use mainstem_api::outlook::with_rounded_money;
use mainstem_core::id::Time;
use mainstem_core::machine::Machine;
use mainstem_core::money::{Account, By, Sum};
use serde_json::{Value, json};

use crate::args::{CostArgs, CostBy};
use crate::commands::history;
use crate::commands::status::one_line;
use crate::context::Context;
use crate::failure::Outcome;
use crate::print;

/// Money spent, and on what.
pub(crate) fn cost(context: &Context, args: &CostArgs) -> Outcome {
    let (_, layout, look) = context.look(args.run.as_deref())?;
    let mut account = Account::new(by(args.by));
    for (record, fact) in history::facts(&look, None)? {
        account.take(&fact, Time(record.at_ms));
    }
    let mut planning = Account::new(by(args.by));
    for (fact, at) in mainstem_engine::draft::spent(&layout)? {
        planning.take(&fact, at);
    }
    if context.global.json {
        let mut all = whole(&account, &look.machine, args.by);
        all["planning"] = sum(&planning.total);
        print::out_json(&with_rounded_money(all))?;
    } else if args.csv {
        print::out(&csv(&account, args.by))?;
    } else if account.sums.is_empty() && planning.sums.is_empty() {
        print::err("no agent has reported tokens or cost yet");
    } else {
        let mut out = String::new();
        if !account.sums.is_empty() {
            out = table(&account, &look.machine, args.by);
        }
        if !planning.sums.is_empty() {
            if !out.is_empty() {
                out.push('\n');
            }
            out.push_str(&planned(&planning.total));
        }
        print::out(&out)?;
    }
    Ok(exit_code::OK)
}

fn by(by: CostBy) -> By {
    match by {
        CostBy::Attempt => By::Attempt,
        CostBy::Task => By::Task,
        CostBy::Epic => By::Epic,
        CostBy::Model => By::Model,
        CostBy::Agent => By::Agent,
        CostBy::Day => By::Day,
    }
}

fn word(by: CostBy) -> &'static str {
    match by {
        CostBy::Attempt => "attempt",
        CostBy::Task => "task",
        CostBy::Epic => "epic",
        CostBy::Model => "model",
        CostBy::Agent => "agent",
        CostBy::Day => "day",
    }
}

fn sum(sum: &Sum) -> Value {
    json!({
        "attempts": sum.attempts.len(),
        "input_tokens": sum.input_tokens, "output_tokens": sum.output_tokens,
        "cache_read_tokens": sum.cache_read_tokens, "cache_write_tokens": sum.cache_write_tokens,
        "cost_usd": sum.paid_usd(), "reported_usd": sum.reported_usd,
        "estimated_usd": sum.estimated_usd, "included_usd": sum.included_usd,
        "unpriced_tokens": sum.unpriced_tokens, "basis": sum.basis(),
    })
}

fn whole(account: &Account, machine: &Machine, by: CostBy) -> Value {
    let rows: Vec<Value> = account
        .sums
        .iter()
        .map(|(name, of)| {
            let mut row = sum(of);
            row[word(by)] = name.clone().into();
            row
        })
        .collect();
    let budget = &machine.settings().budget;
    let forecast = machine.forecast();
    json!({
        "schema": "mainstem.cost/1", "by": word(by), "rows": rows, "total": sum(&account.total),
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

fn csv(account: &Account, by: CostBy) -> String {
    let mut text = format!(
        "{},attempts,input_tokens,output_tokens,cache_read_tokens,cache_write_tokens,cost_usd,included_usd,basis\n",
        word(by)
    );
    for (name, of) in &account.sums {
        text.push_str(&format!(
            "{},{},{},{},{},{},{:.6},{:.6},{}\n",
            cell(name),
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
fn cell(name: &str) -> String {
    let name = one_line(name);
    let name = if name.starts_with(['=', '+', '-', '@']) { format!("'{name}") } else { name };
    if name.contains([',', '"', '\'']) {
        format!("\"{}\"", name.replace('"', "\"\""))
    } else {
        name
    }
}

fn table(account: &Account, machine: &Machine, by: CostBy) -> String {
    let head = [word(by), "attempts", "in", "out", "cache read", "cache write", "cost", "basis"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(account.sums.iter().map(|(name, of)| row(&one_line(name), of)));
    rows.push(row("total", &account.total));
    let mut text = print::table(&rows);
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
    let forecast = machine.forecast();
    if let (Some(average), Some(left), Some(all)) =
        (forecast.average_usd, forecast.estimated_remaining_usd, forecast.total_usd)
        && forecast.remaining > 0
    {
        text.push_str(&format!(
            "\nforecast  {} done at ${average:.2} on average; {} left for about ${left:.2} (${all:.2} in total)\n",
            print::count(u64::from(forecast.completed), "task"),
            forecast.remaining,
        ));
    }
    text
}

/// What drafts of plans cost, all of them together: they belong to no run.
fn planned(total: &Sum) -> String {
    format!(
        "planning  {}, {} tokens in, {} out, ${:.2} ({}): mainstem plan\n",
        print::count(total.attempts.len() as u64, "call"),
        total.input_tokens + total.cache_read_tokens + total.cache_write_tokens,
        total.output_tokens,
        total.paid_usd() + total.included_usd,
        total.basis(),
    )
}

fn row(name: &str, of: &Sum) -> Vec<String> {
    vec![
        print::clip(name, 40),
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
    use super::cell;

    #[test]
    fn a_cell_is_one_cell_and_no_formula() {
        assert_eq!(cell("T-1"), "T-1");
        assert_eq!(cell("a,b"), "\"a,b\"");
        assert_eq!(cell("say \"x\""), "\"say \"\"x\"\"\"");
        assert_eq!(cell("=1+1"), "\"'=1+1\"");
        assert_eq!(cell("two\nlines"), "two lines");
    }
}
