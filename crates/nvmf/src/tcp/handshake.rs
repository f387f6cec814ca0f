//! ICReq and ICResp: what the two sides agree to before the first capsule.

use weft_nvme::tcp::{
    self, DATA_ALIGNMENT_MAX, DigestOptions, InitializeConnectionRequest,
    InitializeConnectionResponse,
};

use super::fault::Fault;

/// Byte offsets of the fields that ICReq and ICResp have in the same place.
const FORMAT_VERSION: u32 = 8;
const DATA_ALIGNMENT: u32 = 10;
const DIGESTS: u32 = 11;
const MAXIMUM: u32 = 12;

/// What both sides know once ICResp is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Negotiated {
    /// Header digests follow headers.
    pub header_digest: bool,
    /// Data digests follow data.
    pub data_digest: bool,
    /// Alignment of data that the host receives, in bytes (from HPDA).
    pub host_alignment: usize,
    /// Alignment of data that the controller receives, in bytes (from CPDA).
    pub controller_alignment: usize,
    /// R2Ts that the controller may have outstanding for a command (from MAXR2T), as a count.
    pub maximum_r2t: u32,
    /// Data of one H2CData PDU at most (MAXH2CDATA), in bytes.
    pub maximum_h2c_data: u32,
}

/// What a host asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostTerms {
    /// Ask for header digests.
    pub header_digest: bool,
    /// Ask for data digests.
    pub data_digest: bool,
    /// HPDA, 0's based dwords.
    pub host_data_alignment: u8,
    /// R2Ts of one command that it takes at a time, as a count.
    pub maximum_r2t: u32,
}

/// What a controller agrees to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControllerTerms {
    /// Agree to header digests if asked.
    pub header_digest: bool,
    /// Agree to data digests if asked.
    pub data_digest: bool,
    /// CPDA, 0's based dwords.
    pub controller_data_alignment: u8,
    /// MAXH2CDATA in bytes.
    pub maximum_h2c_data: u32,
}

impl HostTerms {
    /// The ICReq that asks for these terms.
    #[must_use]
    pub fn request(&self) -> InitializeConnectionRequest {
        InitializeConnectionRequest::new(
            self.host_data_alignment.min(DATA_ALIGNMENT_MAX),
            DigestOptions(0).with_header(self.header_digest).with_data(self.data_digest),
            self.maximum_r2t.saturating_sub(1),
        )
    }

    /// Looks at the answer. Digests must be as asked for: a user who wants them must not go
    /// without, and nobody may be given what he cannot check (the Linux host does the same).
    pub fn accept(&self, response: &InitializeConnectionResponse) -> Result<Negotiated, Fault> {
        if response.format_version.get() != tcp::FORMAT_VERSION {
            return Err(Fault::unsupported(FORMAT_VERSION, "PFV of ICResp is not 1.0"));
        }
        if response.controller_data_alignment > DATA_ALIGNMENT_MAX {
            return Err(Fault::field(DATA_ALIGNMENT, "CPDA is more than 31"));
        }
        if response.digests.header() != self.header_digest
            || response.digests.data() != self.data_digest
        {
            return Err(Fault::field(DIGESTS, "digests are not those that were asked for"));
        }
        let maximum_h2c_data = response.maximum_h2c_data.get();
        if maximum_h2c_data < tcp::MAXIMUM_H2C_DATA_MIN || !maximum_h2c_data.is_multiple_of(4) {
            return Err(Fault::field(MAXIMUM, "MAXH2CDATA is too small or no multiple of 4"));
        }
        Ok(Negotiated {
            header_digest: self.header_digest,
            data_digest: self.data_digest,
            host_alignment: tcp::data_alignment(self.host_data_alignment.min(DATA_ALIGNMENT_MAX)),
            controller_alignment: tcp::data_alignment(response.controller_data_alignment),
            maximum_r2t: self.maximum_r2t.max(1),
            maximum_h2c_data,
        })
    }
}

impl ControllerTerms {
    /// Looks at what the host asks for, and answers.
    pub fn answer(
        &self,
        request: &InitializeConnectionRequest,
    ) -> Result<(InitializeConnectionResponse, Negotiated), Fault> {
        if request.format_version.get() != tcp::FORMAT_VERSION {
            return Err(Fault::unsupported(FORMAT_VERSION, "PFV of ICReq is not 1.0"));
        }
        if request.host_data_alignment > DATA_ALIGNMENT_MAX {
            return Err(Fault::field(DATA_ALIGNMENT, "HPDA is more than 31"));
        }
        let agreed = Negotiated {
            header_digest: self.header_digest && request.digests.header(),
            data_digest: self.data_digest && request.digests.data(),
            host_alignment: tcp::data_alignment(request.host_data_alignment),
            controller_alignment: tcp::data_alignment(
                self.controller_data_alignment.min(DATA_ALIGNMENT_MAX),
            ),
            maximum_r2t: request.maximum_r2t.get().saturating_add(1),
            maximum_h2c_data: self.maximum_h2c_data.max(tcp::MAXIMUM_H2C_DATA_MIN) & !3,
        };
        let response = InitializeConnectionResponse::new(
            self.controller_data_alignment.min(DATA_ALIGNMENT_MAX),
            DigestOptions(0).with_header(agreed.header_digest).with_data(agreed.data_digest),
            agreed.maximum_h2c_data,
        );
        Ok((response, agreed))
    }
}
