//! The note by which the linker tells a program from others: its build ID.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Types of a program header and of a note.
const PT_NOTE: u64 = 4;
const NT_GNU_BUILD_ID: u64 = 3;

/// Program headers and notes are small.
const PART_MAX: u64 = 1 << 16;

/// The build ID of a program, if the linker has given it one. Little of the program is read.
pub(super) fn of(program: &Path) -> Option<String> {
    let file = File::open(program).ok()?;
    let read = |offset: u64, length: u64| {
        let mut bytes = vec![0; usize::try_from(length.min(PART_MAX)).ok()?];
        file.read_exact_at(&mut bytes, offset).ok()?;
        Some(bytes)
    };
    let head = read(0, 64)?;
    // Of 64 bits, with the least significant byte first.
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (at, size) = (number(&head, 32, 8)?, number(&head, 54, 2)?);
    let headers = read(at, size * number(&head, 56, 2)?)?;
    let size = usize::try_from(size).ok().filter(|size| *size > 0)?;
    headers.chunks_exact(size).find_map(|header| {
        let notes = (number(header, 0, 4)? == PT_NOTE)
            .then(|| read(number(header, 8, 8)?, number(header, 32, 8)?))??;
        in_notes(&notes)
    })
}

/// The build ID among notes.
fn in_notes(mut notes: &[u8]) -> Option<String> {
    loop {
        let length = |at| usize::try_from(number(notes, at, 4)?).ok();
        let (name, text) = (length(0)?, length(4)?);
        let begin = 12 + name.next_multiple_of(4);
        let found = notes.get(begin..begin + text)?;
        let is_id = number(notes, 8, 4)? == NT_GNU_BUILD_ID && notes.get(12..16)? == b"GNU\0";
        if is_id && !found.is_empty() {
            return Some(found.iter().map(|byte| format!("{byte:02x}")).collect());
        }
        notes = notes.get(begin + text.next_multiple_of(4)..)?;
    }
}

/// A number of so many bytes.
fn number(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + length)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A note of this type.
    fn note(kind: u8, name: &[u8], text: &[u8]) -> Vec<u8> {
        let padded = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let mut note = vec![u8::try_from(name.len()).expect("short"), 0, 0, 0];
        note.extend([u8::try_from(text.len()).expect("short"), 0, 0, 0, kind, 0, 0, 0]);
        [note, padded(name), padded(text)].concat()
    }

    #[test]
    fn the_build_id_is_found_among_other_notes() {
        let others = [note(1, b"GNU\0", &[0; 16]), note(3, b"Other\0", b"abc")].concat();
        let notes = [others.clone(), note(3, b"GNU\0", &[0xab, 1, 0xff])].concat();
        assert_eq!(in_notes(&notes).as_deref(), Some("ab01ff"));
        assert_eq!(in_notes(&others), None);
        for length in 0..notes.len() - 1 {
            assert_eq!(in_notes(&notes[..length]), None, "cut after {length} bytes");
        }
    }

    #[test]
    fn a_program_has_one_and_other_files_have_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("program");
        let id = [7; 20];
        let mut program = vec![0; 64 + 2 * 56];
        program[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (program[32], program[54], program[56]) = (64, 56, 2);
        let (notes, at) = (note(3, b"GNU\0", &id), u8::try_from(program.len()).expect("short"));
        // The second header is that of the notes.
        (program[120], program[128]) = (4, at);
        program[152] = u8::try_from(notes.len()).expect("short");
        program.extend(&notes);
        std::fs::write(&path, &program).expect("a file");
        assert_eq!(of(&path), Some("07".repeat(20)));
        for length in 0..program.len() {
            std::fs::write(&path, &program[..length]).expect("a file");
            assert_eq!(of(&path), None, "cut after {length} bytes");
        }
        std::fs::write(&path, [b"\x7fELF\x02\x01".as_slice(), &[0xff; 200]].concat())
            .expect("a file");
        assert_eq!(of(&path), None);
        assert_eq!(of(Path::new("/nowhere")), None);
    }
}
