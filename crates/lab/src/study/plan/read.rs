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

impl Plan {
    /// The plan as TOML; reading it gives the same plan.
    ///
    /// # Errors
    /// A value has no form in TOML: a number beyond its range.
    pub fn to_text(&self) -> Result<String, PlanError> {
        toml::to_string(self).map_err(|error| PlanError(error.to_string()))
    }
}
