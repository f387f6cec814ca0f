//! Text that others have written.

/// Whether a terminal would not show it: control characters, ends of lines and paragraphs among
/// them, what changes the direction of text, and what has no width or only tags what is beside it.
#[must_use]
pub fn is_obeyed(one: char) -> bool {
    let is_unseen = matches!(
        one,
        '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    );
    is_unseen || one.is_control()
}
