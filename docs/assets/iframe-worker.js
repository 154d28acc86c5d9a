// Browsers start no worker for a page that was opened from the disk. There, a hidden frame runs the search instead.
if (location.protocol === 'file:') {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      this.frame = document.createElement('iframe');
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inner = this.frame.contentWindow;
      const load = (source) => new Promise((resolve, reject) => {
        const script = inner.document.createElement('script');
        script.onload = resolve;
        script.onerror = reject;
        script.src = new URL(source, location.href).href;
        inner.document.body.append(script);
      });
      inner.importScripts = (...sources) => sources.reduce((before, source) => before.then(() => load(source)), Promise.resolve());
      inner.postMessage = (data) => {
        const event = new MessageEvent('message', {data: data});
        this.dispatchEvent(event);
        if (this.onmessage) { this.onmessage(event); }
      };
      this.started = load(address);
    }

    postMessage(data) {
      const inner = this.frame.contentWindow;
      this.started.then(() => inner.dispatchEvent(new inner.MessageEvent('message', {data: structuredClone(data)})));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
