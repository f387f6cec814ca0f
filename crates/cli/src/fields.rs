//! A structure as named values: nvme-cli's names, so that scripts and habits carry over.

use serde_json::Value;

/// One value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) value: Value,
    /// What it means, where the number alone does not say.
    pub(crate) meaning: String,
}

/// A value that says it all.
pub(crate) fn plain(name: &'static str, value: impl Into<Value>) -> Field {
    Field { name, value: value.into(), meaning: String::new() }
}

/// A value and what it means.
pub(crate) fn meaning(
    name: &'static str,
    value: impl Into<Value>,
    meaning: impl Into<String>,
) -> Field {
    Field { name, value: value.into(), meaning: meaning.into() }
}

/// A value of 128 bits: a number where JSON's readers can hold it, else a text.
pub(crate) fn wide(name: &'static str, value: u128) -> Field {
    let value = u64::try_from(value).map_or_else(|_| Value::from(value.to_string()), Value::from);
    Field { name, value, meaning: String::new() }
}

/// The fields, a line each.
pub(crate) fn human(fields: &[Field]) -> String {
    let width = fields.iter().map(|field| field.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for Field { name, value, meaning } in fields {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        text += &format!("{name:<width$} : {value}");
        if !meaning.is_empty() {
            text += &format!("  ({meaning})");
        }
        text.push('\n');
    }
    text
}

/// The fields as a JSON object.
pub(crate) fn json(fields: Vec<Field>) -> Value {
    Value::Object(fields.into_iter().map(|field| (field.name.to_owned(), field.value)).collect())
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The names of the bits that are set, or "none".
pub(crate) fn names(bits: &[(bool, &str)]) -> String {
    let set: Vec<&str> = bits.iter().filter(|(set, _)| *set).map(|(_, name)| *name).collect();
    if set.is_empty() { "none".to_owned() } else { set.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_become_lines_and_json() {
        let fields = vec![
            plain("sn", "WEFT0001"),
            meaning("mdts", 8, "1 MiB"),
            wide("small", 5),
            wide("large", u128::MAX),
        ];
        assert_eq!(
            human(&fields),
            "sn    : WEFT0001\nmdts  : 8  (1 MiB)\nsmall : 5\n\
             large : 340282366920938463463374607431768211455\n"
        );
        let json = json(fields);
        assert_eq!((&json["mdts"], &json["small"]), (&Value::from(8), &Value::from(5)));
        assert!(json["large"].is_string());
        assert_eq!(hex(&[0, 0xaf]), "00af");
        assert_eq!(names(&[(true, "a"), (false, "b"), (true, "c")]), "a, c");
        assert_eq!(names(&[(false, "b")]), "none");
    }
}
