//! A value for each of some folders of a home. In force at a path is that of the nearest folder.

use home::{Error, ErrorKind, HomePath, Result};

/// Folders with their values.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Folders<T>(Vec<(HomePath, T)>);

impl<T> Folders<T> {
    /// Those of these folders. [`ErrorKind::Invalid`] where a folder has two; `values` is what they are called then.
    pub fn new(mut folders: Vec<(HomePath, T)>, values: &str) -> Result<Folders<T>> {
        folders.sort_by_key(|(path, _)| std::cmp::Reverse(path.names().count()));
        for (at, (path, _)) in folders.iter().enumerate() {
            if folders[..at].iter().any(|(other, _)| other == path) {
                return Err(Error::new(ErrorKind::Invalid, format!("{path} has two {values}")));
            }
        }
        Ok(Folders(folders))
    }

    /// All of them, the deepest first.
    pub fn all(&self) -> &[(HomePath, T)] {
        &self.0
    }

    /// The nearest one on a path.
    pub fn nearest(&self, path: &HomePath) -> Option<&(HomePath, T)> {
        self.0.iter().find(|(folder, _)| folder.contains(path))
    }

    /// Those below a path, each with its way from there.
    pub fn inside<'a>(
        &'a self,
        path: &'a HomePath,
    ) -> impl Iterator<Item = (HomePath, &'a (HomePath, T))> + 'a {
        let inside = self.0.iter().filter(move |(folder, _)| folder != path && path.contains(folder));
        inside.map(move |one| {
            let mut rest = HomePath::root();
            one.0.names().skip(path.names().count()).for_each(|name| rest.push(&name));
            (rest, one)
        })
    }
}
