// The memories of the wasm modules that are instantiated after this module.
export const memories = [];

const { Instance } = WebAssembly;
WebAssembly.Instance = class extends Instance {
  constructor(...parameters) {
    super(...parameters);
    memories.push(this.exports.memory);
  }
};
