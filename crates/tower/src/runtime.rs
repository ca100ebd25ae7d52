//! The runtime on which services run: the program's, or one that ends with its handler.

use std::io;
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};

/// The time that tasks have to end when the runtime ends.
const LAST_TASKS: Duration = Duration::from_secs(5);

/// The runtime on which tasks are spawned.
#[derive(Debug)]
pub(crate) struct ServiceRuntime {
    handle: Handle,
    /// The runtime itself, if it was made here.
    own: Option<Runtime>,
}

impl ServiceRuntime {
    /// A runtime with as many threads as there are cores.
    pub(crate) fn made() -> io::Result<ServiceRuntime> {
        let own = Builder::new_multi_thread().thread_name("tower").enable_all().build()?;
        Ok(ServiceRuntime { handle: own.handle().clone(), own: Some(own) })
    }

    pub(crate) fn given(handle: Handle) -> ServiceRuntime {
        ServiceRuntime { handle, own: None }
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        // the response shows how the task ends
        drop(self.handle.spawn(task));
    }
}

/// Threads of a runtime that was made here have ended when the handler is gone.
impl Drop for ServiceRuntime {
    fn drop(&mut self) {
        let Some(own) = self.own.take() else { return };
        match Handle::try_current() {
            // a task must not wait: the threads end by themselves
            Ok(_) => own.shutdown_background(),
            Err(_) => own.shutdown_timeout(LAST_TASKS),
        }
    }
}
