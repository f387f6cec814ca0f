//! Text that others have written.

/// Whether a terminal would obey it rather than show it: control characters, ends of lines among
/// them, and those that change the direction of text.
#[must_use]
pub fn is_obeyed(one: char) -> bool {
    let turns =
        matches!(one, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns || one.is_control()
}
