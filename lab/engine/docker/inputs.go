package main

import (
	"github.com/pulumi/pulumi-terraform-bridge/v3/pkg/tfbridge"
	"github.com/pulumi/pulumi-terraform-bridge/v3/pkg/tfbridge/info"
	shim "github.com/pulumi/pulumi-terraform-bridge/v3/pkg/tfshim"
)

// inputs gives the names and shapes of all inputs, by resource, as programs write them.
// An object is a map of its fields, a list or a map has one element or the field "*", all else is null.
func inputs(provider info.Provider) map[string]any {
	shapes := map[string]any{"Provider": fields(provider.P.Schema(), provider.Config)}
	for name, resource := range provider.Resources {
		schema := provider.P.ResourcesMap().Get(name).Schema()
		shape := fields(schema, resource.Fields)
		schema.Range(func(name string, field shim.Schema) bool {
			if field.Computed() && !field.Optional() {
				delete(shape, tfbridge.TerraformToPulumiNameV2(name, schema, resource.Fields))
			}
			return true
		})
		shapes[string(resource.Tok.Name())] = shape
	}
	return shapes
}

// fields gives what an object holds; the SDK's types of nested objects hold outputs too.
func fields(schema shim.SchemaMap, infos map[string]*info.Schema) map[string]any {
	shapes := map[string]any{}
	schema.Range(func(name string, field shim.Schema) bool {
		shapes[tfbridge.TerraformToPulumiNameV2(name, schema, infos)] = shape(field, infos[name])
		return true
	})
	return shapes
}

func shape(field shim.Schema, override *info.Schema) any {
	var nested map[string]*info.Schema
	if override != nil && override.Elem != nil {
		nested = override.Elem.Fields
	}
	var element any
	switch inner := field.Elem().(type) {
	case shim.Schema:
		element = shape(inner, nil)
	case shim.Resource:
		element = fields(inner.Schema(), nested)
	}
	switch field.Type() {
	case shim.TypeMap:
		return map[string]any{"*": element}
	case shim.TypeList, shim.TypeSet:
		if tfbridge.IsMaxItemsOne(field, override) {
			return element
		}
		return []any{element}
	default:
		return nil
	}
}
