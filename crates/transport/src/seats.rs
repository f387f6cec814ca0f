//! Who on a reactor gets news from a source that all of a transport's connections share.

use std::io;

use weft_reactor::{Completion, Outcome, Token};

/// A place for news. The number is never given twice at a time, and rarely again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seat(pub(crate) u32);

impl Seat {
    fn index(self) -> usize {
        usize::from(u16::try_from(self.0 & 0xffff).unwrap_or(u16::MAX))
    }
}

/// All places of one source, each with what has come and was not taken yet.
#[derive(Debug)]
pub(crate) struct Seats<M> {
    places: Vec<Option<Taken<M>>>,
    free: Vec<usize>,
    serial: u16,
}

#[derive(Debug)]
struct Taken<M> {
    seat: Seat,
    token: Token,
    told: bool,
    mail: M,
}

impl<M: Default> Seats<M> {
    pub(crate) const fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new(), serial: 0 }
    }

    /// A place whose news comes under this token.
    pub(crate) fn take(&mut self, token: Token) -> io::Result<Seat> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                self.places.push(None);
                self.places.len() - 1
            }
        };
        let number = u16::try_from(index).map_err(|_| io::ErrorKind::OutOfMemory)?;
        self.serial = self.serial.wrapping_add(1);
        let seat = Seat(u32::from(self.serial) << 16 | u32::from(number));
        if let Some(place) = self.places.get_mut(index) {
            *place = Some(Taken { seat, token, told: false, mail: M::default() });
        }
        Ok(seat)
    }

    /// Gives a place up, with what was not taken.
    pub(crate) fn leave(&mut self, seat: Seat) -> Option<M> {
        let place = self.places.get_mut(seat.index())?;
        let taken = place.take_if(|taken| taken.seat == seat)?;
        self.free.push(seat.index());
        Some(taken.mail)
    }

    /// What has come for a place, to be taken from: with the next thing its owner is told anew.
    pub(crate) fn open(&mut self, seat: Seat) -> Option<&mut M> {
        let taken = self.taken(seat)?;
        taken.told = false;
        Some(&mut taken.mail)
    }

    /// What has come for a place, only to be looked at.
    pub(crate) fn look(&self, seat: Seat) -> Option<&M> {
        let taken = self.places.get(seat.index())?.as_ref()?;
        (taken.seat == seat).then_some(&taken.mail)
    }

    /// Something has come for a place: its owner is told, unless it has been told already.
    pub(crate) fn deliver(&mut self, seat: Seat, ready: &mut Vec<Completion>) -> Option<&mut M> {
        let taken = self.taken(seat)?;
        if !std::mem::replace(&mut taken.told, true) {
            ready.push(Completion { token: taken.token, outcome: Outcome::News });
        }
        Some(&mut taken.mail)
    }

    fn taken(&mut self, seat: Seat) -> Option<&mut Taken<M>> {
        self.places.get_mut(seat.index())?.as_mut().filter(|taken| taken.seat == seat)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_reactor::Owner;

    #[test]
    fn news_is_told_once_until_it_is_taken() {
        let mut seats = Seats::<Vec<u8>>::new();
        let seat = seats.take(Token::new(Owner(1), 7)).unwrap();
        let mut ready = Vec::new();
        for byte in 0..3 {
            seats.deliver(seat, &mut ready).unwrap().push(byte);
        }
        assert_eq!(ready.len(), 1);
        assert_eq!(ready[0].token, Token::new(Owner(1), 7));
        assert_eq!(std::mem::take(seats.open(seat).unwrap()), [0, 1, 2]);
        seats.deliver(seat, &mut ready);
        assert_eq!(ready.len(), 2);
    }

    #[test]
    fn news_for_who_left_is_not_for_who_came() {
        let mut seats = Seats::<Vec<u8>>::new();
        let gone = seats.take(Token::new(Owner(1), 1)).unwrap();
        assert_eq!(seats.leave(gone), Some(Vec::new()));
        let here = seats.take(Token::new(Owner(1), 2)).unwrap();
        assert_eq!(gone.index(), here.index());
        let mut ready = Vec::new();
        assert!(seats.deliver(gone, &mut ready).is_none() && ready.is_empty());
        assert!(seats.leave(gone).is_none() && seats.open(here).is_some());
    }
}
