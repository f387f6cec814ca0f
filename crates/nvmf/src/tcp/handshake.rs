//! ICReq and ICResp: the negotiation before the first capsule.

use weft_nvme::tcp::{
    self, DATA_ALIGNMENT_MAX, DigestOptions, InitializeConnectionRequest,
    InitializeConnectionResponse,
};

use super::error::FatalError;

/// Byte offsets of the fields that ICReq and ICResp have in the same place.
const FORMAT_VERSION: u32 = 8;
const DATA_ALIGNMENT: u32 = 10;
const DIGESTS: u32 = 11;
const MAXIMUM: u32 = 12;

/// The negotiated parameters.
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

/// What a host requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostParameters {
    /// Ask for header digests.
    pub header_digest: bool,
    /// Ask for data digests.
    pub data_digest: bool,
    /// HPDA, 0's based dwords.
    pub host_data_alignment: u8,
    /// R2Ts of one command that it takes at a time, as a count.
    pub maximum_r2t: u32,
}

/// What a controller supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControllerParameters {
    /// Agree to header digests if asked.
    pub header_digest: bool,
    /// Agree to data digests if asked.
    pub data_digest: bool,
    /// CPDA, 0's based dwords.
    pub controller_data_alignment: u8,
    /// MAXH2CDATA in bytes.
    pub maximum_h2c_data: u32,
}

impl HostParameters {
    /// The ICReq that requests these parameters.
    #[must_use]
    pub fn request(&self) -> InitializeConnectionRequest {
        InitializeConnectionRequest::new(
            self.host_data_alignment.min(DATA_ALIGNMENT_MAX),
            DigestOptions(0).with_header(self.header_digest).with_data(self.data_digest),
            self.maximum_r2t.saturating_sub(1),
        )
    }

    /// Checks the response. Digests must be as requested, as with the Linux host.
    pub fn accept(
        &self,
        response: &InitializeConnectionResponse,
    ) -> Result<Negotiated, FatalError> {
        if response.format_version.get() != tcp::FORMAT_VERSION {
            return Err(FatalError::unsupported(FORMAT_VERSION, "PFV of ICResp is not 1.0"));
        }
        if response.controller_data_alignment > DATA_ALIGNMENT_MAX {
            return Err(FatalError::field(DATA_ALIGNMENT, "CPDA is more than 31"));
        }
        if response.digests.header() != self.header_digest
            || response.digests.data() != self.data_digest
        {
            return Err(FatalError::field(DIGESTS, "digests are not those that were asked for"));
        }
        let maximum_h2c_data = response.maximum_h2c_data.get();
        if maximum_h2c_data < tcp::MAXIMUM_H2C_DATA_MIN || !maximum_h2c_data.is_multiple_of(4) {
            return Err(FatalError::field(MAXIMUM, "MAXH2CDATA is too small or no multiple of 4"));
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

impl ControllerParameters {
    /// Checks the request, and makes the response.
    pub fn answer(
        &self,
        request: &InitializeConnectionRequest,
    ) -> Result<(InitializeConnectionResponse, Negotiated), FatalError> {
        if request.format_version.get() != tcp::FORMAT_VERSION {
            return Err(FatalError::unsupported(FORMAT_VERSION, "PFV of ICReq is not 1.0"));
        }
        if request.host_data_alignment > DATA_ALIGNMENT_MAX {
            return Err(FatalError::field(DATA_ALIGNMENT, "HPDA is more than 31"));
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
