//! Plans from TOML and to it.

use std::str::FromStr;

use super::{Plan, PlanError};
use crate::results::Value;

impl FromStr for Plan {
    type Err = PlanError;

    fn from_str(text: &str) -> Result<Self, PlanError> {
        let mut plan: Self = toml::from_str(text).map_err(|error| located(text, &error))?;
        let axes = plan.axes.iter_mut().chain(&mut plan.quick.axes).chain(&mut plan.rdma.axes);
        for (key, values) in axes {
            values.iter_mut().try_for_each(|value| read(key, value))?;
        }
        let loads = plan.interference.iter_mut().flat_map(|interference| {
            interference
                .foreground
                .values_mut()
                .chain(interference.neighbour.values_mut())
                .chain(std::iter::once(&mut interference.background))
        });
        let answers = plan.answer.iter_mut().flat_map(|answer| {
            answer.number.iter_mut().map(|number| &mut number.at).chain([&mut answer.at])
        });
        let all = std::iter::once(&mut plan.fixed).chain(loads).chain(answers);
        for configuration in all {
            configuration.iter_mut().try_for_each(|(key, value)| read(key, value))?;
        }
        plan.check()?;
        Ok(plan)
    }
}

/// One sentence, with the line number.
fn located(text: &str, error: &toml::de::Error) -> PlanError {
    let before = error.span().and_then(|span| text.get(..span.start));
    let line = before.map(|before| format!("line {}: ", before.matches('\n').count() + 1));
    PlanError(format!("{}{}", line.unwrap_or_default(), error.message().trim()))
}

/// Sizes may have units.
fn read(key: &str, value: &mut Value) -> Result<(), PlanError> {
    if let (true, Some(text)) = (key.ends_with("_bytes"), value.as_text()) {
        let bytes = weft_backend::bytes::parse(text)
            .map_err(|error| PlanError(format!("{key}: {error}")))?;
        *value = Value::Integer(bytes);
    }
    Ok(())
}

/// The text of a plan with this number of repeats, of a device that is not preconditioned again.
/// Keys that this build does not know stay.
///
/// # Errors
/// The text is not TOML.
pub fn with_repeats(text: &str, repeats: u32) -> Result<String, PlanError> {
    let mut table: toml::Table = toml::from_str(text).map_err(|error| located(text, &error))?;
    table.remove("precondition");
    let measure = table.entry("measure").or_insert_with(|| toml::Table::new().into());
    if let Some(measure) = measure.as_table_mut() {
        for key in ["repeats", "repeats_max"] {
            measure.insert(key.to_owned(), i64::from(repeats).into());
        }
    }
    let answer = table.get_mut("answer").and_then(toml::Value::as_table_mut);
    answer.map(|answer| answer.remove("repeats"));
    toml::to_string(&table).map_err(|error| PlanError(error.to_string()))
}

impl Plan {
    /// The plan as TOML; reading it gives the same plan.
    ///
    /// # Errors
    /// A value has no form in TOML: a number beyond its range.
    pub fn to_text(&self) -> Result<String, PlanError> {
        toml::to_string(self).map_err(|error| PlanError(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::builtin;

    #[test]
    fn repeats_are_set_in_the_text_of_any_plan() {
        let builtin = builtin::find("concurrency").expect("a study").text;
        let text = format!("precondition = true\nlater = 7\n{builtin}");
        let changed = with_repeats(&text, 9).expect("a plan");
        assert!(changed.contains("later = 7") && !changed.contains("precondition"), "{changed}");
        let known = changed.replace("later = 7", "");
        let (mut plan, before): (Plan, Plan) =
            (known.parse().expect(&known), builtin.parse().expect("a plan"));
        assert_eq!((plan.measure.repeats, plan.measure.repeats_max), (9, 9));
        plan.measure = before.measure.clone();
        assert_eq!(plan, before);
        assert!(with_repeats("= 7", 1).is_err());
    }
}
