//! Which pages are free: a binary buddy allocator that deals with page numbers only.
//!
//! Some freed blocks of each order are kept without joining, for the next request of that order:
//! the buffers of a turn's commands, and a receive buffer of every turn, are not split and joined
//! each time. They are joined before memory is used for the first time. Of all other blocks that
//! are large enough the one at the lowest address is taken, not the smallest: the memory in use
//! stays together, and even after months a pool has touched little more than it once needed at the
//! same time.

use super::bitset::BitSet;

/// Orders 0..=10: blocks of 1 to 1024 pages (4 KiB to 4 MiB).
pub(super) const ORDERS: usize = 11;
/// Pages of the largest block.
pub(super) const CHUNK_PAGES: u32 = 1 << (ORDERS - 1);
/// Most pages of an order that are kept; at least one block.
const KEPT_PAGES: u32 = 64;
/// New memory is opened in pieces of this many pages, the size of a receive buffer: the rest of a
/// piece counts as touched.
const OPENED_PAGES: u32 = 64;

const NONE: u32 = u32::MAX;
/// State of a page that is not the first of a block.
const INSIDE: u8 = 0;
const FREE: u8 = 0x40;
const USED: u8 = 0x80;
const KEPT: u8 = 0x20;
const ORDER_MASK: u8 = 0x0f;

#[derive(Debug)]
pub(super) struct Buddy {
    /// Free blocks of each order, by their number among all blocks of that order.
    free: [BitSet; ORDERS],
    /// The first page of the lowest of them, cached: splitting a block compares all orders.
    lowest: [u32; ORDERS],
    /// The block of each order that was freed last and is not joined with its neighbours.
    kept: [u32; ORDERS],
    /// The one before, where a kept block starts.
    next: Box<[u32]>,
    /// How many more of each order may be kept.
    room: [u32; ORDERS],
    /// The state of the block that starts at each page.
    state: Box<[u8]>,
    free_pages: u32,
    /// Pages from this one on were never used.
    opened: u32,
}

impl Buddy {
    /// All of `chunks` largest blocks are free.
    pub(super) fn new(chunks: u32) -> Self {
        let pages = chunks as usize * CHUNK_PAGES as usize;
        let mut buddy = Self {
            free: std::array::from_fn(|order| BitSet::below(pages >> order)),
            lowest: [NONE; ORDERS],
            kept: [NONE; ORDERS],
            next: vec![NONE; pages].into_boxed_slice(),
            room: std::array::from_fn(|order| (KEPT_PAGES >> order).max(1)),
            state: vec![INSIDE; pages].into_boxed_slice(),
            free_pages: chunks * CHUNK_PAGES,
            opened: 0,
        };
        for chunk in 0..chunks {
            buddy.link(chunk * CHUNK_PAGES, ORDERS - 1);
        }
        buddy
    }

    pub(super) fn free_pages(&self) -> u32 {
        self.free_pages
    }

    /// Takes a block of 2^`order` pages; its first page.
    pub(super) fn take(&mut self, order: usize) -> Option<u32> {
        let page = self
            .take_kept(order)
            .or_else(|| self.split(order, self.opened))
            .or_else(|| {
                self.join_kept();
                self.split(order, self.opened)
            })
            .or_else(|| self.split(order, NONE))?;
        self.state[page as usize] = USED | tag(order);
        self.free_pages -= 1 << order;
        Some(page)
    }

    /// Frees the block that starts at `page`.
    pub(super) fn give(&mut self, page: u32) {
        let state = self.state[page as usize];
        assert!(state & USED != 0, "a block is freed that was not taken");
        let order = usize::from(state & ORDER_MASK);
        self.free_pages += 1 << order;
        if self.room[order] == 0
            && let Some(before) = self.take_kept(order)
        {
            self.join(before, order);
        }
        self.room[order] -= 1;
        self.state[page as usize] = KEPT | tag(order);
        self.next[page as usize] = std::mem::replace(&mut self.kept[order], page);
    }

    /// Cuts a block that is in use down to 2^`order` pages.
    pub(super) fn shrink(&mut self, page: u32, order: usize) {
        let state = self.state[page as usize];
        assert!(state & USED != 0, "a block is cut that was not taken");
        let before = usize::from(state & ORDER_MASK);
        if order >= before {
            return;
        }
        for part in order..before {
            self.link(page + (1 << part), part);
            self.free_pages += 1 << part;
        }
        self.state[page as usize] = USED | tag(order);
    }

    /// Takes 2^`order` pages off the lowest block that is large enough, if they end at `end` or
    /// before, and puts the rest of it back.
    fn split(&mut self, order: usize, end: u32) -> Option<u32> {
        let mut found = (order..ORDERS).min_by_key(|&order| self.lowest[order])?;
        let page = self.lowest[found];
        if page == NONE || page + (1 << order) > end {
            return None;
        }
        self.unlink(page, found);
        while found > order {
            found -= 1;
            self.link(page + (1 << found), found);
        }
        let end = (page + (1 << order)).next_multiple_of(OPENED_PAGES);
        self.opened = self.opened.max(end);
        Some(page)
    }

    /// The block of this order that was kept last.
    fn take_kept(&mut self, order: usize) -> Option<u32> {
        let page = self.kept[order];
        if page == NONE {
            return None;
        }
        self.kept[order] = self.next[page as usize];
        self.room[order] += 1;
        Some(page)
    }

    /// Joins the kept blocks.
    #[cold]
    fn join_kept(&mut self) {
        for order in 0..ORDERS {
            while let Some(page) = self.take_kept(order) {
                self.join(page, order);
            }
        }
    }

    /// Makes a block free, joined with its free neighbours.
    fn join(&mut self, mut page: u32, mut order: usize) {
        self.state[page as usize] = INSIDE;
        while order < ORDERS - 1 {
            let neighbour = page ^ (1 << order);
            if self.state[neighbour as usize] != FREE | tag(order) {
                break;
            }
            self.unlink(neighbour, order);
            page = page.min(neighbour);
            order += 1;
        }
        self.link(page, order);
    }

    fn link(&mut self, page: u32, order: usize) {
        self.free[order].insert(page as usize >> order);
        self.lowest[order] = self.lowest[order].min(page);
        self.state[page as usize] = FREE | tag(order);
    }

    fn unlink(&mut self, page: u32, order: usize) {
        let free = &mut self.free[order];
        free.remove(page as usize >> order);
        if self.lowest[order] == page {
            self.lowest[order] = free.lowest().map_or(NONE, |number| first_page(number, order));
        }
        self.state[page as usize] = INSIDE;
    }
}

/// The first page of the block with this number among all of an order.
#[allow(clippy::cast_possible_truncation, reason = "pages are counted in 32 bits")]
fn first_page(number: usize, order: usize) -> u32 {
    (number << order) as u32
}

/// An order as a state's low bits.
#[allow(clippy::cast_possible_truncation)] // orders are below 16
const fn tag(order: usize) -> u8 {
    order as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_chunk_splits_and_joins() {
        let mut buddy = Buddy::new(1);
        let pages: Vec<_> = (0..CHUNK_PAGES).map(|_| buddy.take(0).unwrap()).collect();
        assert_eq!(buddy.take(0), None);
        assert_eq!(buddy.free_pages(), 0);
        for page in pages {
            buddy.give(page);
        }
        assert_eq!(buddy.take(ORDERS - 1), Some(0));
    }

    #[test]
    fn what_was_given_back_last_comes_first() {
        let mut buddy = Buddy::new(1);
        let (first, second) = (buddy.take(3).unwrap(), buddy.take(3).unwrap());
        buddy.give(second);
        buddy.give(first);
        assert_eq!(buddy.take(3), Some(first));
        buddy.give(first);
        assert_eq!(buddy.take(ORDERS - 1), Some(0));
    }

    #[test]
    fn as_many_are_kept_as_may_be() {
        for (order, most) in [(0, 64), (3, 8), (6, 1), (ORDERS - 1, 1)] {
            let mut buddy = Buddy::new(4);
            let pages: Vec<_> = (0..most + 2).map_while(|_| buddy.take(order)).collect();
            for page in &pages {
                buddy.give(*page);
            }
            let kept = buddy.state.iter().filter(|state| **state == KEPT | tag(order));
            assert_eq!(kept.count(), most, "of order {order}");
            assert_eq!(
                buddy.take(order),
                pages.last().copied(),
                "the block freed last is taken first"
            );
            assert_eq!(buddy.free_pages(), 4 * CHUNK_PAGES - (1 << order));
        }
    }

    /// Turns of receive buffers that are cut to what came, and of payloads of one page.
    #[test]
    fn nothing_new_is_opened_while_the_old_is_enough() {
        let mut buddy = Buddy::new(4);
        let mut seed = 1_u32;
        let mut random = move |below: u32| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 16) % below
        };
        let mut opened = Vec::new();
        for _ in 0..2000 {
            let mut held: Vec<_> = (0..4)
                .flat_map(|_| {
                    let receive = buddy.take(6).unwrap();
                    buddy.shrink(receive, random(5) as usize);
                    let payloads = (0..random(16)).map(|_| buddy.take(0).unwrap());
                    payloads.chain([receive]).collect::<Vec<_>>()
                })
                .collect();
            while !held.is_empty() {
                let count = u32::try_from(held.len()).unwrap();
                buddy.give(held.swap_remove(random(count) as usize));
            }
            opened.push(buddy.opened / OPENED_PAGES);
        }
        // A turn holds four cut receive buffers of up to 16 pages, and 60 pages at most.
        assert!(opened[1999] <= 5, "{} are open", opened[1999]);
        assert_eq!(opened[100], opened[1999], "open after 100 turns, and after 2000");
    }

    #[test]
    fn what_is_half_new_comes_after_what_is_kept() {
        let mut buddy = Buddy::new(1);
        let pages: Vec<_> = [0, 6, 6, 6, 6].map(|order| buddy.take(order).unwrap()).into();
        assert_eq!((pages.as_slice(), buddy.opened), ([0, 64, 128, 192, 256].as_slice(), 320));
        for place in [0, 1, 2, 4, 3] {
            buddy.give(pages[place]);
        }
        assert_eq!((buddy.take(8), buddy.opened), (Some(0), 320));
    }

    #[test]
    fn low_addresses_come_first() {
        let mut buddy = Buddy::new(3);
        assert_eq!(buddy.take(0), Some(0));
        assert_eq!(buddy.take(ORDERS - 1), Some(CHUNK_PAGES));
    }

    #[test]
    #[should_panic(expected = "not taken")]
    fn giving_twice_is_loud() {
        let mut buddy = Buddy::new(1);
        let page = buddy.take(3).unwrap();
        buddy.give(page);
        buddy.give(page);
    }

    proptest! {
        #[test]
        fn blocks_never_overlap_and_all_come_back(
            steps in proptest::collection::vec((0..ORDERS, 0..3u8, any::<u16>()), 1..300)
        ) {
            let mut buddy = Buddy::new(2);
            let mut owner = vec![false; 2 * CHUNK_PAGES as usize];
            let mut held: Vec<(u32, usize)> = Vec::new();
            for (order, action, pick) in steps {
                if action == 2 && !held.is_empty() {
                    let position = usize::from(pick) % held.len();
                    let (page, before) = held[position];
                    let after = order.min(before);
                    buddy.shrink(page, after);
                    owner[page as usize + (1 << after)..page as usize + (1 << before)].fill(false);
                    held[position].1 = after;
                } else if action == 1 && !held.is_empty() {
                    let (page, order) = held.swap_remove(usize::from(pick) % held.len());
                    owner[page as usize..page as usize + (1 << order)].fill(false);
                    buddy.give(page);
                } else if let Some(page) = buddy.take(order) {
                    prop_assert_eq!(page % (1 << order), 0);
                    for page in &mut owner[page as usize..page as usize + (1 << order)] {
                        prop_assert!(!*page);
                        *page = true;
                    }
                    held.push((page, order));
                } else {
                    prop_assert!(buddy.free_pages() < 2 * CHUNK_PAGES);
                }
                let used = owner.iter().filter(|used| **used).count();
                prop_assert_eq!(used + buddy.free_pages() as usize, owner.len());
            }
            for (page, _) in held {
                buddy.give(page);
            }
            prop_assert!(buddy.take(ORDERS - 1).is_some());
            prop_assert!(buddy.take(ORDERS - 1).is_some());
        }
    }
}
