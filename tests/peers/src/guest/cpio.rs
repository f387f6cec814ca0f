//! The "newc" archive format of an initramfs.

/// An archive that is being written.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;

impl Archive {
    /// Adds a directory; its parents come first.
    pub(crate) fn directory(&mut self, path: &str) {
        self.entry(path, DIRECTORY, &[]);
    }

    /// Adds a file that everyone may execute.
    pub(crate) fn file(&mut self, path: &str, content: &[u8]) {
        self.entry(path, PROGRAM, content);
    }

    /// The finished archive.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    /// Magic, 13 fields of eight hexadecimal digits (inode, mode, owner, group, links, time,
    /// size, four device numbers, length of the name, check sum), the name, the content;
    /// name and content padded to four bytes.
    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let size = u32::try_from(content.len()).expect("an initramfs file is small");
        let name = u32::try_from(path.len() + 1).expect("a path is short");
        self.bytes.extend_from_slice(b"070701");
        for field in [self.entries, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name, 0] {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_the_layout_that_the_kernel_expects() {
        let mut archive = Archive::default();
        archive.file("init", b"hello");
        let bytes = archive.finish();
        assert_eq!(&bytes[..6], b"070701");
        assert_eq!(&bytes[6 + 8..6 + 16], b"000081ed", "mode");
        assert_eq!(&bytes[6 + 48..6 + 56], b"00000005", "size of the content");
        assert_eq!(&bytes[6 + 88..6 + 96], b"00000005", "length of the name with its end");
        assert_eq!(&bytes[110..115], b"init\0");
        assert_eq!(&bytes[116..124], b"hello\0\0\0", "the content starts and ends at four bytes");
        assert_eq!(&bytes[124..130], b"070701", "the trailer follows");
        assert_eq!(bytes.len() % 4, 0);
    }
}
