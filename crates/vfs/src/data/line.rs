//! Who of a volume's writers waits for room in the cache, and whose turn it is.
//!
//! Each file has a line of its own, and the files take turns, one call each: who writes little waits for one call of every
//! other file, not for all that others have to write. Whoever is told to come again leaves his file's turn behind for a while,
//! so that he does not wait anew behind all others.

use crate::limits;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::Notify;

/// Those who wait.
#[derive(Default)]
pub struct Line(Arc<Mutex<Files>>);

#[derive(Default)]
struct Files {
    /// In the order of their turns.
    files: VecDeque<File>,
    /// Those who wait for all of them.
    waiting: usize,
}

struct File {
    id: u64,
    /// Who comes first is woken first.
    waiting: VecDeque<Arc<Notify>>,
    /// How often others had the turn of it while nobody waited.
    missed: u32,
}

/// A place in the line, until it is dropped.
pub struct Place {
    line: Arc<Mutex<Files>>,
    file: u64,
    woken: Arc<Notify>,
    served: bool,
}

impl Line {
    /// How many wait.
    pub fn len(&self) -> usize {
        self.0.lock().waiting
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the last place of a file.
    pub fn stand(&self, file: u64) -> Place {
        let woken = Arc::new(Notify::new());
        let mut line = self.0.lock();
        match line.files.iter_mut().find(|f| f.id == file) {
            Some(file) => file.waiting.push_back(woken.clone()),
            None => {
                line.files.push_back(File { id: file, waiting: VecDeque::from([woken.clone()]), missed: 0 })
            }
        }
        line.waiting += 1;
        // There may have been room since it was last tried.
        if line.is_first(&woken) {
            woken.notify_one();
        }
        Place { line: self.0.clone(), file, woken, served: false }
    }

    /// There may be room now.
    pub fn wake(&self) {
        self.0.lock().wake();
    }
}

impl Place {
    /// Whether it is its turn.
    pub fn is_first(&self) -> bool {
        self.line.lock().is_first(&self.woken)
    }

    /// Waits until it is its turn and there may be room. Room on the disk comes without a word, so that whoever has the turn
    /// looks for it every [`limits::ROOM_TICK`].
    pub async fn turn(&self) {
        loop {
            match self.is_first() {
                true => drop(tokio::time::timeout(limits::ROOM_TICK, self.woken.notified()).await),
                // Whose turn it becomes is woken.
                false => self.woken.notified().await,
            }
            if self.is_first() {
                return;
            }
        }
    }

    /// Room was found: it is the next file's turn.
    pub fn served(mut self) {
        self.served = true;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut line = self.line.lock();
        let first = line.is_first(&self.woken);
        line.leave(self);
        if first {
            line.wake();
        }
    }
}

impl Files {
    fn first(&self) -> Option<&Arc<Notify>> {
        self.files.iter().find_map(|f| f.waiting.front())
    }

    fn is_first(&self, woken: &Arc<Notify>) -> bool {
        self.first().is_some_and(|first| Arc::ptr_eq(first, woken))
    }

    fn wake(&self) {
        if let Some(first) = self.first() {
            first.notify_one();
        }
    }

    fn leave(&mut self, place: &Place) {
        let Some(at) = self.files.iter().position(|f| f.id == place.file) else { return };
        let Some(mut file) = self.files.remove(at) else { return };
        file.waiting.retain(|one| !Arc::ptr_eq(one, &place.woken));
        self.waiting -= 1;
        if !place.served {
            if !file.waiting.is_empty() || self.files.len() < limits::ROOM_TURNS {
                self.files.insert(at, file);
            }
            return;
        }
        if !file.waiting.is_empty() {
            file.missed = 0;
            self.files.push_back(file);
        }
        let passed = self.files.iter_mut().take(at).filter(|f| f.waiting.is_empty());
        passed.for_each(|f| f.missed += 1);
        self.files.retain(|f| !f.waiting.is_empty() || f.missed < limits::ROOM_MISSED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(places: &[&Place]) -> Vec<bool> {
        places.iter().map(|p| p.is_first()).collect()
    }

    #[test]
    fn files_take_turns_and_who_came_first_to_one_is_first() {
        let line = Line::default();
        assert!(line.is_empty());
        let (a, a2, a3) = (line.stand(1), line.stand(1), line.stand(1));
        let b = line.stand(2);
        assert_eq!(first(&[&a, &a2, &a3, &b]), [true, false, false, false]);
        a.served();
        assert_eq!(first(&[&a2, &a3, &b]), [false, false, true]);
        b.served();
        assert_eq!(first(&[&a2, &a3]), [true, false]);
        drop(a2);
        assert!(a3.is_first() && !line.is_empty());
        a3.served();
        assert!(line.is_empty());
    }

    #[test]
    fn who_comes_again_finds_the_turn_of_his_file_for_a_while() {
        let line = Line::default();
        let (a, b) = (line.stand(1), line.stand(2));
        drop(a);
        b.served();
        let (b, a) = (line.stand(2), line.stand(1));
        assert_eq!(first(&[&a, &b]), [true, false]);
        drop((a, b));
        for _ in 0..limits::ROOM_MISSED {
            line.stand(3).served();
        }
        let (c, late) = (line.stand(3), line.stand(1));
        assert_eq!(first(&[&c, &late]), [true, false]);
    }

    #[test]
    fn turns_that_nobody_comes_back_for_are_bounded() {
        let line = Line::default();
        let places: Vec<_> = (0..limits::ROOM_TURNS as u64 + 50).map(|n| line.stand(n)).collect();
        drop(places);
        assert!(line.is_empty());
        assert!(line.0.lock().files.len() <= limits::ROOM_TURNS);
    }

    async fn soon(place: &Place) -> bool {
        tokio::time::timeout(limits::ROOM_TICK / 2, place.turn()).await.is_ok()
    }

    #[tokio::test(start_paused = true)]
    async fn whose_turn_it_becomes_is_woken_at_once() {
        let line = Line::default();
        let (a, b) = (line.stand(1), line.stand(2));
        assert!(soon(&a).await, "there may have been room before he stood there");
        assert!(!soon(&a).await && !soon(&b).await);
        line.wake();
        assert!(soon(&a).await);
        assert!(tokio::time::timeout(2 * limits::ROOM_TICK, a.turn()).await.is_ok(), "he looks by himself");
        a.served();
        assert!(soon(&b).await);
    }
}
