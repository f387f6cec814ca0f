//! Where a command's data is: in its capsule, or in memory of the host that one or several
//! keyed descriptors name.

use weft_nvme::sgl::{Descriptor, Location};

use crate::limits::RDMA_DESCRIPTORS_MAX;
use weft_nvme::{Command, Status, Wire};

/// Where a command's data is.
#[expect(clippy::large_enum_variant, reason = "it moves into a table; a box would be allocated")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Data {
    /// There is none.
    None,
    /// At the beginning of the capsule's data, this long.
    InCapsule {
        /// Bytes.
        length: u32,
    },
    /// In the host's memory.
    Remote(Remote),
}

/// A piece of the host's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Block {
    address: u64,
    length: u32,
    key: u32,
}

/// The host's memory for one command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remote {
    blocks: [Block; RDMA_DESCRIPTORS_MAX],
    count: u8,
    length: u32,
    invalidate: Option<u32>,
}

/// One transfer between contiguous local memory and contiguous memory of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteTransfer {
    /// Bytes from the beginning of the command's data.
    pub offset: u32,
    /// How many bytes.
    pub length: u32,
    /// Where they are at the host.
    pub address: u64,
    /// The key of that memory.
    pub key: u32,
}

impl Remote {
    /// Nothing, to be filled.
    const EMPTY: Self = Self {
        blocks: [Block { address: 0, length: 0, key: 0 }; RDMA_DESCRIPTORS_MAX],
        count: 0,
        length: 0,
        invalidate: None,
    };

    /// Bytes of all of it.
    #[must_use]
    pub const fn length(&self) -> u32 {
        self.length
    }

    /// The key that the host wants invalidated with the response.
    #[must_use]
    pub const fn invalidate(&self) -> Option<u32> {
        self.invalidate
    }

    /// The transfers for the first `length` bytes.
    pub fn parts(&self, length: u32) -> impl Iterator<Item = RemoteTransfer> + '_ {
        let blocks = self.blocks.iter().take(usize::from(self.count));
        let mut offset = 0;
        blocks.map_while(move |block| {
            let length = block.length.min(length.saturating_sub(offset));
            let part = RemoteTransfer { offset, length, address: block.address, key: block.key };
            offset = offset.saturating_add(length);
            (length > 0).then_some(part)
        })
    }

    fn push(&mut self, location: &Location) -> Result<(), Status> {
        let Location::Keyed { address, length, key, invalidate } = *location else {
            return Err(Status::SGL_DESCRIPTOR_TYPE_INVALID.with_dnr());
        };
        if length == 0 {
            return Ok(());
        }
        let place = self.blocks.get_mut(usize::from(self.count));
        *place.ok_or(Status::INVALID_SGL_DESCRIPTOR_COUNT.with_dnr())? =
            Block { address, length, key };
        self.count += 1;
        let total = self.length.checked_add(length);
        self.length = total.ok_or(Status::DATA_SGL_LENGTH_INVALID.with_dnr())?;
        // One response can invalidate one key: the first that is asked for.
        if invalidate && self.invalidate.is_none() {
            self.invalidate = Some(key);
        }
        Ok(())
    }
}

/// Where the data of a command is whose capsule brought `capsule` bytes after it. An error is
/// what the command is to be completed with.
pub fn data_of(command: &Command, capsule: &[u8]) -> Result<Data, Status> {
    let available = u32::try_from(capsule.len()).unwrap_or(u32::MAX);
    let location = command
        .data_pointer
        .location()
        .map_err(|_| Status::SGL_DESCRIPTOR_TYPE_INVALID.with_dnr())?;
    match location {
        Location::InCapsule { offset, .. } if offset != 0 => {
            Err(Status::SGL_OFFSET_INVALID.with_dnr())
        }
        Location::InCapsule { length: 0, .. } => Ok(Data::None),
        Location::InCapsule { length, .. } if length <= available => Ok(Data::InCapsule { length }),
        Location::InCapsule { .. } => Err(Status::DATA_SGL_LENGTH_INVALID.with_dnr()),
        Location::Segment { address, length, in_capsule: true, last: true } => {
            let descriptors = segment(capsule, address, length)?;
            let mut remote = Remote::EMPTY;
            for bytes in descriptors.chunks_exact(Descriptor::SIZE) {
                let location = Descriptor::read(bytes)
                    .ok()
                    .and_then(|descriptor| descriptor.location().ok())
                    .ok_or(Status::SGL_DESCRIPTOR_TYPE_INVALID.with_dnr())?;
                remote.push(&location)?;
            }
            Ok(if remote.length == 0 { Data::None } else { Data::Remote(remote) })
        }
        location => {
            let mut remote = Remote::EMPTY;
            remote.push(&location)?;
            Ok(if remote.length == 0 { Data::None } else { Data::Remote(remote) })
        }
    }
}

/// The descriptors of a segment in the capsule.
fn segment(capsule: &[u8], address: u64, length: u32) -> Result<&[u8], Status> {
    let start = usize::try_from(address).ok();
    let length = usize::try_from(length).ok();
    let (Some(start), Some(length)) = (start, length) else {
        return Err(Status::SGL_OFFSET_INVALID.with_dnr());
    };
    if length == 0 || length % Descriptor::SIZE != 0 {
        return Err(Status::INVALID_SGL_SEGMENT_DESCRIPTOR.with_dnr());
    }
    if length / Descriptor::SIZE > RDMA_DESCRIPTORS_MAX {
        return Err(Status::INVALID_SGL_DESCRIPTOR_COUNT.with_dnr());
    }
    let end = start.checked_add(length);
    end.and_then(|end| capsule.get(start..end)).ok_or(Status::SGL_OFFSET_INVALID.with_dnr())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_nvme::NvmOpcode;
    use weft_nvme::sgl::{DescriptorSubType, DescriptorType};

    fn of(descriptor: Descriptor, capsule: &[u8]) -> Result<Data, Status> {
        data_of(&Command::new(NvmOpcode::WRITE).with_data_pointer(descriptor), capsule)
    }

    fn list(descriptors: &[Descriptor]) -> Vec<u8> {
        descriptors.iter().flat_map(|descriptor| descriptor.bytes().to_vec()).collect()
    }

    fn last_segment(offset: u64, length: u32) -> Descriptor {
        let (kind, sub) = (DescriptorType::LAST_SEGMENT, DescriptorSubType::OFFSET);
        Descriptor::unkeyed(offset, length, kind, sub)
    }

    #[test]
    fn one_descriptor_in_the_command() {
        let Ok(Data::Remote(remote)) = of(Descriptor::keyed(0x1000, 4096, 7, true), &[]) else {
            panic!()
        };
        assert_eq!((remote.length(), remote.invalidate()), (4096, Some(7)));
        let parts: Vec<RemoteTransfer> = remote.parts(4096).collect();
        assert_eq!(parts, [RemoteTransfer { offset: 0, length: 4096, address: 0x1000, key: 7 }]);
        assert_eq!(remote.parts(512).next().unwrap().length, 512);
        assert_eq!(remote.parts(0).count(), 0);
        let Ok(Data::Remote(kept)) = of(Descriptor::keyed(0x1000, 1, 7, false), &[]) else {
            panic!()
        };
        assert_eq!(kept.invalidate(), None);
        // What Linux puts into a command without data.
        assert_eq!(of(Descriptor::keyed(0, 0, 0, false), &[]), Ok(Data::None));
    }

    #[test]
    fn several_descriptors_in_the_capsule() {
        let capsule = list(&[
            Descriptor::keyed(0x1000, 512, 1, false),
            Descriptor::keyed(0x9000, 0, 9, true),
            Descriptor::keyed(0x3000, 1024, 2, true),
        ]);
        let Ok(Data::Remote(remote)) = of(last_segment(0, 48), &capsule) else { panic!() };
        assert_eq!((remote.length(), remote.invalidate()), (1536, Some(2)));
        let parts: Vec<RemoteTransfer> = remote.parts(600).collect();
        let first = RemoteTransfer { offset: 0, length: 512, address: 0x1000, key: 1 };
        assert_eq!(
            parts,
            [first, RemoteTransfer { offset: 512, length: 88, address: 0x3000, key: 2 }]
        );
        assert_eq!(remote.parts(1536).map(|part| part.length).sum::<u32>(), 1536);
        assert!(matches!(of(last_segment(16, 32), &capsule), Ok(Data::Remote(_))));
    }

    #[test]
    fn bad_segments_are_named() {
        let keyed = Descriptor::keyed(0x1000, 512, 1, false);
        let capsule = list(&[keyed; RDMA_DESCRIPTORS_MAX + 1]);
        let most = u32::try_from(RDMA_DESCRIPTORS_MAX * 16).unwrap();
        assert!(of(last_segment(0, most), &capsule).is_ok());
        for (pointer, capsule, status) in [
            (last_segment(0, most + 16), &capsule[..], Status::INVALID_SGL_DESCRIPTOR_COUNT),
            (last_segment(0, 0), &capsule, Status::INVALID_SGL_SEGMENT_DESCRIPTOR),
            (last_segment(0, 17), &capsule, Status::INVALID_SGL_SEGMENT_DESCRIPTOR),
            (last_segment(16, 32), &capsule[..47], Status::SGL_OFFSET_INVALID),
            (last_segment(u64::MAX, 16), &capsule, Status::SGL_OFFSET_INVALID),
            (last_segment(0, 16), &[0; 16], Status::SGL_DESCRIPTOR_TYPE_INVALID),
            (last_segment(0, 16), &[0xff; 16], Status::SGL_DESCRIPTOR_TYPE_INVALID),
        ] {
            assert_eq!(of(pointer, capsule), Err(status.with_dnr()), "{pointer:?}");
        }
    }

    #[test]
    fn data_in_the_capsule_is_there() {
        let capsule = [7; 512];
        let inside = |offset, length| of(Descriptor::in_capsule(offset, length), &capsule);
        assert_eq!(inside(0, 512), Ok(Data::InCapsule { length: 512 }));
        assert_eq!(inside(0, 100), Ok(Data::InCapsule { length: 100 }));
        assert_eq!(inside(0, 0), Ok(Data::None));
        assert_eq!(inside(0, 513), Err(Status::DATA_SGL_LENGTH_INVALID.with_dnr()));
        assert_eq!(inside(16, 16), Err(Status::SGL_OFFSET_INVALID.with_dnr()));
        // Plain memory and the data block of TCP mean nothing here.
        let transport = of(Descriptor::transport(512), &[]);
        assert_eq!(transport, Err(Status::SGL_DESCRIPTOR_TYPE_INVALID.with_dnr()));
    }

    #[test]
    fn every_pointer_is_read_or_refused() {
        let mut capsule = list(&[Descriptor::keyed(1, 2, 3, true); 3]);
        for raw in 0..=u8::MAX {
            let mut descriptor = Descriptor::keyed(0, 48, 0, false);
            descriptor.identifier.0 = raw;
            let _ = of(descriptor, &capsule);
            capsule[15] = raw;
            let _ = of(last_segment(0, 48), &capsule);
        }
        let huge = list(&[Descriptor::keyed(0, u32::MAX, 3, true); RDMA_DESCRIPTORS_MAX]);
        let Ok(Data::Remote(remote)) = of(last_segment(0, 256), &huge) else { panic!() };
        assert_eq!(remote.length(), 16 * 0xff_ffff);
    }
}
